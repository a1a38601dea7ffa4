// LM head.
//   logits = W_head RMSNorm(h)     fp32; each warp keeps the best of its rows
// Reads   mlp_out (hidden) of the last layer; row 2 * layers of norms (2 * layers + 1, hidden), the
//         final norm; W_head's slots from the ring.
// Writes  Shared::partials rows 0 and 1: best logit and its row by warp, from which the publisher
//         chooses the token; Shared::head_input; logits (vocab) when asked for.
// Half of the warps take the even slots, half the odd ones; a warp takes one of a slot's 8 rows. It
// uses fp32 multiply-adds: 15 of the 16 rows that a tensor core computes would be thrown away.
#pragma once

#include "kernels/ring/consumer.cuh"

namespace mkbench::ring {

__device__ __forceinline__ float dot8(uint4 w, const float* a, float sum) {
  const unsigned q[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(low_bf16(q[i]), a[2 * i], sum);
    sum = fmaf(high_bf16(q[i]), a[2 * i + 1], sum);
  }
  return sum;
}

// Writes h times the final norm's weights to Shared::head_input; returns 1 / rms, equal in all
// threads.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ float head_input(Consumer<L, kAblation>& c, const Lane& me,
                                            const Site& site, int turn) {
  const int t = me.warp * 32 + me.lane;
  const float2 h = await_residual<L, kAblation>(c.p, site, me, c.block.index, c.s, c.p.mlp_out, 1);
  c.mark(SpanKind::kBody);
  if (c.p.hidden != nullptr && c.block.index == 0) {
    reinterpret_cast<float2*>(c.p.hidden)[(c.p.layers - 1) * (L::kHidden / 2) + t] = h;
  }
  const unsigned norm =
      load_pair(c.p.norms + static_cast<size_t>(2 * c.p.layers) * L::kHidden + 2 * t);
  *reinterpret_cast<float2*>(&c.s.head_input[2 * t]) =
      make_float2(h.x * low_bf16(norm), h.y * high_bf16(norm));
  float squares = h.x * h.x + h.y * h.y;
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) squares += shuffle_xor(squares, offset);
  if (me.lane == 0) c.s.squares[turn][me.warp] = squares;
  ptx::named_sync<kConsumerThreads>(kConsumers);
  return norm_scale<L>(c.p, square_sum(c.s, turn));
}

// Passes over a slot that the other half of the warps reads.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void skip_slot(RingReader<L, kAblation>& ring, const Lane& me) {
  if (kSmallRing<L>) {
    ring.await_within(ring.at);
    __syncwarp();
    if (me.lane == 0) ring.release(ring.at, 1);
  }
  ring.at.advance();
}

// Returns the dot product of this warp's row in the current slot and goes on to the next slot.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ float score_slot(RingReader<L, kAblation>& ring, const Lane& me,
                                            int in_slot, const float (&a)[32]) {
  ring.await_within(ring.at);
  const uint4* q = reinterpret_cast<const uint4*>(ring.data(ring.at)) + in_slot * 128 + me.lane;
  uint4 w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = q[32 * i];
  __syncwarp();
  if (me.lane == 0) ring.release(ring.at, kSmallRing<L> ? 1 : 2);
  ring.at.advance();
  float x = (dot8(w[0], a, 0.0f) + dot8(w[1], a + 8, 0.0f)) +
            (dot8(w[2], a + 16, 0.0f) + dot8(w[3], a + 24, 0.0f));
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += shuffle_xor(x, offset);
  return x;
}

// The best row of a warp. The initial row lies beyond every vocabulary and is no token.
struct Best {
  float logit = -3.4028235e38f;
  int row = 0x7fffffff;
};

template <typename L, RingAblation kAblation>
__device__ __forceinline__ Best score_rows(Consumer<L, kAblation>& c, const Lane& me, float scale) {
  float a[32];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4* input = reinterpret_cast<const float4*>(&c.s.head_input[i * 256 + me.lane * 8]);
    *reinterpret_cast<float4*>(&a[8 * i]) = input[0];
    *reinterpret_cast<float4*>(&a[8 * i + 4]) = input[1];
  }
  const int slots = L::head_slots(c.p.vocab), rows = L::head_rows(c.p.vocab);
  const int in_slot = (me.warp >> 3) * 4 + (me.warp & 3), odd = (me.warp >> 2) & 1;
  const int first_row = c.block.index * rows;
  const int row_end = min(first_row + rows, c.p.vocab);
  float* logits = c.p.logits == nullptr
                      ? nullptr
                      : c.p.logits + static_cast<size_t>(c.step - c.p.first_output) * c.p.vocab;
  Best best;
  if (odd != 0 && slots > 0) skip_slot(c.ring, me);
#pragma unroll 1
  for (int k = odd; k < slots; k += 2) {
    const float x = score_slot(c.ring, me, in_slot, a) * scale;
    if (k + 1 < slots) skip_slot(c.ring, me);
    const int row = first_row + k * L::kRowsPerSlot + in_slot;
    if (row >= row_end) continue;
    if (logits != nullptr && me.lane == 0) logits[row] = x;
    if (x > best.logit || x != x) best = {x, row};  // a NaN stays: no comparison with it is true
  }
  return best;
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void phase_lm_head(Consumer<L, kAblation>& c) {
  const Lane me = consumer_lane();
  const Site site{Phase::kLmHead, c.p.layers, c.position()};
  const int turn = c.even_turn();
  c.enter(SpanKind::kHandOff, Phase::kLmHead, -1);
  ptx::named_sync<kOneMore>(kPartialsRead);
  c.mark(SpanKind::kExchange);
  const float scale = head_input(c, me, site, turn);
  Best best;
  if (c.step >= c.p.first_output) best = score_rows(c, me, scale);
  if (me.lane == 0) {
    c.s.partials[turn][0][me.warp] = best.logit;
    c.s.partials[turn][1][me.warp] = __int_as_float(best.row);
  }
  ptx::named_arrive<kOneMore>(kPartials + turn);
}

}  // namespace mkbench::ring
