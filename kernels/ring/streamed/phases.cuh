// The phases of a streamed shape, whose weights do not fit into the registers. Mathematics, exchange
// and roles are those of a held shape (held/). A phase consists of rounds (struct Rounds in
// layer_plan.h). In each round a warp multiplies some tiles of 16 rows with its columns, chunk by chunk
// from the ring, and hands the sums over; the publisher publishes one round while the consumers
// multiply the next. The first chunk is fetched before the phase waits for its input. Between two
// rounds the consumers wait for kPartialsRead. A warp keeps its input in shared memory, as B operands
// of the MMA k-steps: Shared::activations.
#pragma once

#include "kernels/ring/streamed/attention.cuh"

namespace mkbench::ring {

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

// Waits for a warp's columns of the group's SwiGLU vector and stores them as two bf16 planes.
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

// Hands over rounds of 48 rows of the LM head; the publisher keeps the best row. A step without an
// output (prefill) hands over one empty round.
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
