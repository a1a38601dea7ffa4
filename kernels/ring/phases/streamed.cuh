// The phases of a streamed shape, whose weights do not fit into the registers: same mathematics, same
// exchange and same roles as the phases of a held shape (qkv.cuh, o_proj.cuh, gate_up.cuh, down.cuh,
// lm_head.cuh). A phase goes in rounds (struct Rounds in layout.h). In each round a warp multiplies
// some tiles of 16 rows with its columns, chunk by chunk from the ring, and hands the sums over; the
// publisher publishes one round while the consumers multiply the next. The first chunk is fetched
// before the phase waits for its input. Between two rounds the consumers wait for kPartialsRead.
// A warp keeps its input in shared memory, as B operands of the steps: Shared::activations.
#pragma once

#include "kernels/ring/phases/o_proj.cuh"

namespace mkbench::ring {

// Pairs of neighbouring elements of a warp's share of the residual, and those of each lane at most:
// pair 32 i + lane of the warp. The last ones are not in all lanes.
template <typename L>
inline constexpr int kWarpPairs = L::kWarpColumns / 2;
template <typename L>
inline constexpr int kLanePairs = (kWarpPairs<L> + 31) / 32;

template <typename L>
__device__ __forceinline__ int pair_in_warp(const Lane& me, int i) {
  return min(32 * i + me.lane, kWarpPairs<L> - 1);  // lanes without a pair look at the last one
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
// the residual. As await_residual(), but the values that were seen last are read again with every
// look, because they would take too many registers.
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

// Two neighbouring elements of a warp's input, number `pair`, in both planes.
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

// The warp's input of a phase that begins with RMSNorm; see NormInput. Returns the sum of the squares
// of all of the warp's elements.
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

// B operands of a step from the warp's input.
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

// Multiplies one round: d[tile] = the warp's 16 rows times its columns, with columns 2j and 2j + 1
// still to be added. `w` holds the round's first chunk.
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
      if (step >= kSteps) {  // the last 8 columns, of two tiles
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

// Waits until the publisher has read the round before.
__device__ __forceinline__ void await_partials_read() { ptx::named_sync<kOneMore>(kPartialsRead); }

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void hand_over(Consumer<L, kAblation>& c) {
  __syncwarp();
  ptx::named_arrive<kOneMore>(kPartials + c.streamed_turn);
  c.streamed_turn ^= 1;
}

// Element i of tile j, both planes added, of the first four tiles; 0 beyond the last one. Without
// selects the compiler would index the array at run time, in local memory.
template <int kTiles>
__device__ __forceinline__ float select_sum(int j, int i, const float (&d)[kTiles][4]) {
  const auto sum = [&](int t) {
    return t < kTiles ? d[t < kTiles ? t : 0][i] + d[t < kTiles ? t : 0][i + 1] : 0.0f;
  };
  return select4(j, sum(0), sum(1), sum(2), sum(3));
}

// Writes the sums of a round's rows. All values of Lane::j have the same sums, so each writes one of
// four tiles.
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

// Returns false when the launch has ended.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ bool stream_qkv(Consumer<L, kAblation>& c, int layer) {
  constexpr Rounds kRound = L::kQkvRound;
  static_assert(kRound.rounds == 1);
  const Lane me = consumer_lane();
  const Site site{Phase::kQkv, layer, c.position()};
  uint4 w[kRound.chunk()];
  if (layer > 0) await_partials_read();
  const NormWeights<L> norm(c.p, me, 2 * layer);
  fetch_chunk(c, me, w);
  Residual<L> r;
  if (layer == 0) {
    if (c.step > 0) {
      ptx::named_sync<kOneMore>(kTokenDone);
      if (c.s.token < 0) return false;
    }
    embed_pairs(c, me, r);
  } else {
    await_pairs(c, site, me, c.p.mlp_out, 1, r);
    keep_hidden(c, me, layer - 1, r);
  }
  const float squares = store_norm_input(c, me, r, norm);
  float d[kRound.tiles][4];
  multiply_round<kRound.tiles, kRound.steps, kRound.fragments()>(
      c, me, w, StoredInput(me, c.s.activations[me.warp]), d);
  if (me.lane == 0) c.s.squares[c.streamed_turn][me.warp] = squares;
  write_rows(c, me, d);
  hand_over(c);
  return true;
}

// The sum of `kWords` partials, all polled together.
template <RingAblation kAblation, int kWords>
__device__ __forceinline__ Partial await_partial_words(const LaunchParams& p, const Site& at,
                                                       const unsigned* words, unsigned epoch) {
  uint4 w[kWords];
  warp_wait_until(p, at, epoch, [&](unsigned& seen) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = ptx::load_relaxed16(words + 128 * i);
    bool ready = true;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      ready = ready && word_ready(w[i].w, epoch);
      seen = w[i].w & 0xffu;
    }
    return ready || kAblation == RingAblation::kNoWaits;
  });
  Partial sum = partial_of(w[0]);
#pragma unroll
  for (int i = 1; i < kWords; ++i) {
    const Partial x = partial_of(w[i]);
#pragma unroll
    for (int n = 0; n < 4; ++n) sum.numerators[n] += x.numerators[n];
    sum.denominator += x.denominator;
  }
  return sum;
}

// A word of attention partials of one reader warp, in words of 32 bits: [member / 2][pair of heads]
// [member % 2][j], so that bit 1 of Lane::row is the pair of what a lane reads.
template <typename L>
__device__ __forceinline__ int partial_word(int member, int pair, int j) {
  return 4 * (((member >> 1) * L::kHeadPairs + pair) * 8 + (member & 1) * 4 + j);
}

// Publishes the block's share of attention, awaits the group's and returns the B operands of the
// lane's pair.
template <typename L, bool kSplit, RingAblation kAblation>
__device__ __forceinline__ void publish_share(Consumer<L, kAblation>& c, unsigned* words,
                                              const Attended& r) {
  using A = Attention<L, kSplit, kAblation>;
  const Lane me = consumer_lane();
  if ((me.row & (L::kHeadPairs == 1 ? 7 : 5)) != 0) return;
  publish_partial(
      words + partial_word<L>(c.block.member(), A::value_pair(me), me.j),
      {{r.numerators[0], r.numerators[1], r.numerators[2], r.numerators[3]}, r.denominator},
      c.epoch);
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ OutInput await_shares(Consumer<L, kAblation>& c, const Lane& me,
                                                 const Site& site, const unsigned* words) {
  Partial sum =
      await_partial_words<kAblation, 2 * L::kHeadPairs>(c.p, site, words + 4 * me.lane, c.epoch);
  if constexpr (L::kHeadPairs == 1) {
    return combined_out_input(me, sum);
  } else {
    // What is left are the members that bits 0 and 2 of Lane::row tell apart.
#pragma unroll
    for (int offset = 4; offset <= 16; offset *= 4) {
#pragma unroll
      for (int n = 0; n < 4; ++n) sum.numerators[n] += shuffle_xor(sum.numerators[n], offset);
      sum.denominator += shuffle_xor(sum.denominator, offset);
    }
    const float* n = sum.numerators;
    return out_input(me, {{n[0], n[1], n[2], n[3]}, sum.denominator});
  }
}

// B operands of O: step s has the pair of heads s.
template <typename L>
struct HeadsInput {
  OutInput of[L::kHeadPairs];
  __device__ __forceinline__ HeadsInput(const Lane& me, const OutInput& mine) {
    if (L::kHeadPairs == 1) {
      of[0] = mine;
      return;
    }
    const OutInput other{__shfl_xor_sync(~0u, mine.b0, 8), __shfl_xor_sync(~0u, mine.b1, 8)};
    const bool second = (me.row & 2) != 0;
    of[0] = second ? other : mine;
    of[L::kHeadPairs - 1] = second ? mine : other;
  }
  __device__ __forceinline__ uint2 operator()(int step) const {
    return make_uint2(of[step].b0, of[step].b1);
  }
  __device__ __forceinline__ uint2 last8(int) const { return {}; }
};

// All rounds of O or down.
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

template <bool kSplit, typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_attention_out(Consumer<L, kAblation>& c, int layer) {
  constexpr Rounds kRound = L::kOutRound;
  Attention<L, kSplit, kAblation> a(c, layer);
  const PairInputs inputs = pair_inputs<L>(c.p, consumer_lane(), layer, a.site.position);
  await_partials_read();
  a.load_k(0);
  warp_head_pairs(c, a.site, layer, inputs);
  const Attended r = attend(a, layer);
  uint4 w[kRound.chunk()];
  OutInput x;
  if (kSplit) {
    unsigned* words = c.p.partials + (c.block.group() * kConsumerWarps + consumer_lane().warp) *
                                         kMembers * 16 * L::kHeadPairs;
    publish_share<L, kSplit, kAblation>(c, words, r);
    const Lane me = consumer_lane();
    fetch_chunk(c, me, w);
    x = await_shares(c, me, a.site, words);
  } else {
    const Lane me = consumer_lane();
    x = out_input(me, r);
    fetch_chunk(c, me, w);
  }
  stream_rows<kRound.rounds, kRound.tiles, kRound.steps, kRound.fragments()>(
      c, w, HeadsInput<L>(consumer_lane(), x));
}

// Writes 8 gate rows and the 8 up rows of the same units for each tile.
template <typename L, RingAblation kAblation, int kTiles>
__device__ __forceinline__ void write_units(Consumer<L, kAblation>& c, const Lane& me,
                                            const float (&d)[kTiles][4]) {
  static_assert(kTiles <= 4);
  float(*rows)[20] = c.s.partials[c.streamed_turn];
  const float gate = select_sum(me.j, 0, d), up = select_sum(me.j, 2, d);
  if (me.j < kTiles) {
    rows[8 * me.j + me.row][me.warp] = gate;
    rows[L::kRoundUnits + 8 * me.j + me.row][me.warp] = up;
  }
}

// The 4 units that are left after the last whole tile: 4 gate rows and 4 up rows, two steps a
// fragment.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_half_tile(Consumer<L, kAblation>& c,
                                                 const StoredInput& input) {
  const Lane me = consumer_lane();
  uint4 w[L::kHalfTileFragments];
  fetch_chunk(c, me, w);
  float d[4] = {};
#pragma unroll
  for (int step = 0; step < L::kHiddenSteps; ++step) {
    const uint2 b = input(step);
    const uint4 f = w[step / 2];
    const uint4 half = step % 2 == 0 ? make_uint4(f.x, 0, f.y, 0) : make_uint4(f.z, 0, f.w, 0);
    ptx::mma_k16(d, half, b.x, b.y);
  }
  await_partials_read();
  if (me.j == 0) {
    const int row = (me.row & 4) == 0 ? me.row : L::kRoundUnits + me.row - 4;
    c.s.partials[c.streamed_turn][row][me.warp] = d[0] + d[1];
  }
  hand_over(c);
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_gate_up(Consumer<L, kAblation>& c, int layer) {
  constexpr Rounds kRound = L::kGateUpRound;
  const Lane me = consumer_lane();
  const Site site{Phase::kGateUp, layer, c.position()};
  uint4 w[kRound.chunk()];
  await_partials_read();
  const NormWeights<L> norm(c.p, me, 2 * layer + 1);
  fetch_chunk(c, me, w);
  Residual<L> r;
  await_pairs(c, site, me, c.p.attention_out, 0, r);
  const float squares = store_norm_input(c, me, r, norm);
  if (me.lane == 0) c.s.squares[c.streamed_turn][me.warp] = squares;
  const StoredInput input(me, c.s.activations[me.warp]);
#pragma unroll 1
  for (int round = 0; round < kRound.rounds; ++round) {
    const Lane now = consumer_lane();
    if (round > 0) fetch_chunk(c, now, w);
    float d[kRound.tiles][4];
    multiply_round<kRound.tiles, kRound.steps, kRound.fragments()>(c, now, w, input, d);
    if (round > 0) await_partials_read();
    write_units(c, now, d);
    hand_over(c);
  }
  if constexpr (L::kHalfTile) stream_half_tile(c, input);
}

// A warp's columns of the group's SwiGLU vector, in both planes.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void await_swiglu(Consumer<L, kAblation>& c, const Lane& me,
                                             const Site& site) {
  constexpr int kPairs = L::kDownColumns / 2, kLoads = (kPairs + 31) / 32;
  const int column_warp = me.warp % (kConsumerWarps / L::kDownParts);
  const unsigned* words =
      c.p.swiglu + c.block.group() * L::kGroupUnits + column_warp * L::kDownColumns;
  uint2 v[kLoads];
  warp_wait_until(c.p, site, c.epoch, [&](unsigned& seen) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      v[i] = ptx::load_relaxed2(words + 2 * min(32 * i + me.lane, kPairs - 1));
    bool ready = true;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      ready = ready && word_ready(v[i].x, c.epoch) && word_ready(v[i].y, c.epoch);
      seen = v[i].x & 0xffu;
    }
    return ready || kAblation == RingAblation::kNoWaits;
  });
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (32 * i + me.lane < kPairs)
      store_input(c.s.activations[me.warp], 32 * i + me.lane, word_value(v[i].x),
                  word_value(v[i].y));
  }
  __syncwarp();
}

// B operands of down, whose last 8 columns are one word a lane.
struct SwigluInput {
  const unsigned* plane;
  int j;
  __device__ __forceinline__ SwigluInput(const Lane& me, const unsigned* input)
      : plane(input + (me.row & 1) * 8), j(me.j) {}
  __device__ __forceinline__ uint2 operator()(int step) const {
    return *reinterpret_cast<const uint2*>(plane + 16 * step + 2 * j);
  }
  __device__ __forceinline__ uint2 last8(int step) const {
    return make_uint2(plane[16 * step + j], 0);
  }
};

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_down(Consumer<L, kAblation>& c, int layer) {
  constexpr Rounds kRound = L::kDownRound;
  const Lane me = consumer_lane();
  const Site site{Phase::kDown, layer, c.position()};
  uint4 w[kRound.chunk()];
  await_partials_read();
  fetch_chunk(c, me, w);
  await_swiglu(c, me, site);
  stream_rows<kRound.rounds, kRound.tiles, kRound.steps, kRound.fragments()>(
      c, w, SwigluInput(me, c.s.activations[me.warp]));
}

// Hands over rounds of 48 rows of the LM head; the publisher keeps the best row. Without an output
// there is one round, which is empty.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void stream_lm_head(Consumer<L, kAblation>& c) {
  constexpr Rounds kRound = L::kHeadRound;
  const Lane me = consumer_lane();
  const Site site{Phase::kLmHead, c.p.layers, c.position()};
  await_partials_read();
  const NormWeights<L> norm(c.p, me, 2 * c.p.layers);
  Residual<L> r;
  await_pairs(c, site, me, c.p.mlp_out, 1, r);
  keep_hidden(c, me, c.p.layers - 1, r);
  const float squares = store_norm_input(c, me, r, norm);
  if (me.lane == 0) c.s.squares[c.streamed_turn][me.warp] = squares;
  const StoredInput input(me, c.s.activations[me.warp]);
  const int rounds = c.step >= c.p.first_output ? L::head_rounds(c.p.vocab) : 0;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const Lane now = consumer_lane();
    uint4 w[kRound.chunk()];
    fetch_chunk(c, now, w);
    float d[kRound.tiles][4];
    multiply_round<kRound.tiles, kRound.steps, kRound.fragments()>(c, now, w, input, d);
    if (round > 0) await_partials_read();
    write_rows(c, now, d);
    hand_over(c);
  }
  if (rounds == 0) hand_over(c);
}

}  // namespace mkbench::ring
