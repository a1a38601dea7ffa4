// What the phases of a streamed shape share (phases.cuh): the residual in pairs of elements, a warp's
// input in shared memory, and the rounds in which it is multiplied.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

// Pairs of neighbouring elements of the residual: how many a warp has, and how many a lane has at
// most. A lane's pair i is the warp's pair 32 i + lane. Some lanes may lack their last pair.
template <typename L>
inline constexpr int kWarpPairs = L::kWarpColumns / 2;
template <typename L>
inline constexpr int kLanePairs = (kWarpPairs<L> + 31) / 32;

template <typename L>
__device__ __forceinline__ int pair_in_warp(const Lane& me, int i) {
  return min(32 * i + me.lane, kWarpPairs<L> - 1);  // lanes without a pair repeat the last one
}
template <typename L>
__device__ __forceinline__ bool has_pair(const Lane& me, int i) {
  return 32 * i + 32 <= kWarpPairs<L> || 32 * i + me.lane < kWarpPairs<L>;
}
template <typename L>
__device__ __forceinline__ int pair_at(const Lane& me, int i) {
  return me.warp * kWarpPairs<L> + pair_in_warp<L>(me, i);
}

// A lane's pairs of the residual.
template <typename L>
struct Residual {
  float2 h[kLanePairs<L>];
};

// Waits for the groups' contributions to the lane's elements, all polled at once, and adds them to
// the residual. Like await_residual(), but each poll reads the values seen last (Shared::seen) again,
// because keeping them would take too many registers.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void await_pairs(const Consumer<L, kAblation>& c, const Site& at,
                                            const Lane& me, const FixedWord* accumulator, int which,
                                            Residual<L>& r) {
  constexpr int kPairs = kLanePairs<L>;
  const FixedWord* words = accumulator + c.block.index % kReplicas * L::kHidden;
  ulonglong2* seen = c.s.seen[which];
  ulonglong2 now[kPairs];
  warp_wait_until(c.p, at, kGroups, [&](unsigned& arrivals) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) now[i] = ptx::load_relaxed2(words + 2 * pair_at<L>(me, i));
    bool ready = true;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const ulonglong2 before = seen[pair_at<L>(me, i)];
      arrivals = fixed_arrivals(now[i].x - before.x);
      ready = ready && arrivals == kGroups && fixed_arrivals(now[i].y - before.y) == kGroups;
    }
    return ready || kAblation == RingAblation::kNoWaits;
  });
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int pair = pair_at<L>(me, i);
    const ulonglong2 before = seen[pair];
    float2 h = c.s.residual[pair];
    h.x += fixed_sum(now[i].x - before.x);
    h.y += fixed_sum(now[i].y - before.y);
    r.h[i] = h;
    __syncwarp();  // lanes that share a pair have read it
    if (has_pair<L>(me, i)) {
      seen[pair] = now[i];
      c.s.residual[pair] = h;
    }
  }
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void embed_pairs(Consumer<L, kAblation>& c, const Lane& me,
                                            Residual<L>& r) {
#pragma unroll
  for (int i = 0; i < kLanePairs<L>; ++i) {
    const int at = pair_at<L>(me, i);
    const unsigned pair =
        load_pair(c.p.embed + static_cast<size_t>(c.s.token) * L::kHidden + 2 * at);
    r.h[i] = make_float2(low_bf16(pair), high_bf16(pair));
    if (has_pair<L>(me, i)) c.s.residual[at] = r.h[i];
  }
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void keep_hidden(const Consumer<L, kAblation>& c, const Lane& me,
                                            int layer, const Residual<L>& r) {
  if (c.p.hidden == nullptr || c.block.index != 0) return;
#pragma unroll
  for (int i = 0; i < kLanePairs<L>; ++i) {
    reinterpret_cast<float2*>(c.p.hidden)[layer * (L::kHidden / 2) + pair_at<L>(me, i)] = r.h[i];
  }
}

// Stores pair number `pair` of a warp's input, x0 and x1, as high and low plane.
__device__ __forceinline__ void store_input(unsigned* input, int pair, float x0, float x1) {
  unsigned* to = input + pair / 8 * 16 + pair % 8;
  const unsigned high = ptx::bf16_pair(x0, x1);
  to[0] = high;
  to[8] = bf16_rest(x0, x1, high);
}

// The norm's weights of the lane's pairs, loaded ahead of the wait.
template <typename L>
struct NormWeights {
  unsigned pairs[kLanePairs<L>];
  __device__ __forceinline__ NormWeights(const LaunchParams& p, const Lane& me, int row) {
#pragma unroll
    for (int i = 0; i < kLanePairs<L>; ++i)
      pairs[i] = load_pair(p.norms + static_cast<size_t>(row) * L::kHidden + 2 * pair_at<L>(me, i));
  }
};

// Stores the warp's input of a phase that begins with RMSNorm (see NormInput). Returns the sum of
// the squares of all of the warp's elements.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ float store_norm_input(Consumer<L, kAblation>& c, const Lane& me,
                                                  const Residual<L>& r,
                                                  const NormWeights<L>& weights) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLanePairs<L>; ++i) {
    if (!has_pair<L>(me, i)) continue;
    const float2 h = r.h[i];
    squares += h.x * h.x + h.y * h.y;
    store_input(c.s.activations[me.warp], pair_in_warp<L>(me, i), h.x * low_bf16(weights.pairs[i]),
                h.y * high_bf16(weights.pairs[i]));
  }
  __syncwarp();
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) squares += shuffle_xor(squares, offset);
  return squares;
}

// B operands of one MMA k-step (16 columns), read from the warp's input.
struct StoredInput {
  const unsigned* of_lane;
  __device__ __forceinline__ StoredInput(const Lane& me, const unsigned* input)
      : of_lane(input + (me.row & 1) * 8 + 2 * me.j) {}
  __device__ __forceinline__ uint2 operator()(int step) const {
    return *reinterpret_cast<const uint2*>(of_lane + 16 * step);
  }
  __device__ __forceinline__ uint2 last8(int) const { return {}; }
};

template <typename L, RingAblation kAblation, int kChunk>
__device__ __forceinline__ void fetch_chunk(Consumer<L, kAblation>& c, const Lane& me,
                                            uint4 (&w)[kChunk]) {
  c.ring.template await_slots<kChunk / kWarpFragments>(me);
  c.ring.fetch(me, w);
}

// Multiplies one round: d[tile] = the tile's 16 rows times the warp's columns, with the products of
// the high plane (even MMA columns) and the low plane (odd) not yet added. `w`: the first chunk.
template <int kTiles, int kSteps, int kFragments, typename L, RingAblation kAblation, int kChunk,
          typename Input>
__device__ __forceinline__ void multiply_round(Consumer<L, kAblation>& c, const Lane& me,
                                               uint4 (&w)[kChunk], const Input& input,
                                               float (&d)[kTiles][4]) {
  static_assert(kFragments % kChunk == 0);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) d[t][0] = d[t][1] = d[t][2] = d[t][3] = 0.0f;
  uint2 b{};
#pragma unroll
  for (int first = 0; first < kFragments; first += kChunk) {
    if (first > 0) fetch_chunk(c, me, w);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const int f = first + i, step = f / kTiles, tile = f % kTiles;
      if (step >= kSteps) {  // 8 columns are left over: one fragment holds them for two tiles
        const int left = 2 * (f - kTiles * kSteps);
        if (left == 0) b = input.last8(kSteps);
        ptx::mma_k8(d[left], w[i].x, w[i].y, b.x);
        if (left + 1 < kTiles)
          ptx::mma_k8(d[left + 1 < kTiles ? left + 1 : 0], w[i].z, w[i].w, b.x);
        continue;
      }
      if (tile == 0) b = input(step);
      ptx::mma_k16(d[tile], w[i], b.x, b.y);
    }
  }
}

// Waits until the publisher has read the previous round's partial sums.
__device__ __forceinline__ void await_partials_read() { ptx::named_sync<kOneMore>(kPartialsRead); }

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void hand_over(Consumer<L, kAblation>& c) {
  __syncwarp();
  ptx::named_arrive<kOneMore>(kPartials + c.streamed_turn);
  c.streamed_turn ^= 1;
}

// Returns d[j][i] + d[j][i + 1], high plus low bf16 plane, for j < 4; 0 if there is no tile j. It
// selects, because an index that is known only at run time would put the array into local memory.
template <int kTiles>
__device__ __forceinline__ float select_sum(int j, int i, const float (&d)[kTiles][4]) {
  const auto sum = [&](int t) {
    return t < kTiles ? d[t < kTiles ? t : 0][i] + d[t < kTiles ? t : 0][i + 1] : 0.0f;
  };
  return select4(j, sum(0), sum(1), sum(2), sum(3));
}

// Writes the sums of a round's rows. The four lanes of a row (Lane::j) hold the same sums, so each
// lane writes one of the first four tiles; lanes with j = 0 also write a fifth.
template <typename L, RingAblation kAblation, int kTiles>
__device__ __forceinline__ void write_rows(Consumer<L, kAblation>& c, const Lane& me,
                                           const float (&d)[kTiles][4]) {
  static_assert(kTiles <= 5);
  float(*rows)[20] = c.s.partials[c.streamed_turn];
  const float first = select_sum(me.j, 0, d), second = select_sum(me.j, 2, d);
  if (me.j < kTiles) {
    rows[16 * me.j + me.row][me.warp] = first;
    rows[16 * me.j + 8 + me.row][me.warp] = second;
  }
  if (kTiles == 5 && me.j == 0) {
    rows[64 + me.row][me.warp] = d[kTiles - 1][0] + d[kTiles - 1][1];
    rows[72 + me.row][me.warp] = d[kTiles - 1][2] + d[kTiles - 1][3];
  }
}

// Runs all rounds of O or down.
template <int kRounds, int kTiles, int kSteps, int kFragments, typename L, RingAblation kAblation,
          int kChunk, typename Input>
__device__ __forceinline__ void stream_rows(Consumer<L, kAblation>& c, uint4 (&w)[kChunk],
                                            const Input& input) {
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    const Lane me = consumer_lane();
    if (round > 0) fetch_chunk(c, me, w);
    float d[kTiles][4];
    multiply_round<kTiles, kSteps, kFragments>(c, me, w, input, d);
    if (round > 0) await_partials_read();
    write_rows(c, me, d);
    hand_over(c);
  }
}

}  // namespace mkbench::ring
