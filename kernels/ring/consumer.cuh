// The state that a consumer warp keeps from phase to phase, and functions that several phases use.
#pragma once

#include "kernels/ring/context_share.cuh"
#include "kernels/ring/weight_ring.cuh"

namespace mkbench::ring {

template <typename L, RingAblation kAblation>
struct Consumer {
  const LaunchParams& p;
  Shared<L>& s;
  const Block block;
  RingReader<L, kAblation> ring;
  int step = 0;
  unsigned epoch = 0;     // of the current layer
  int streamed_turn = 0;  // which set of partials a streamed shape's next round fills

  // Records in the timeline what the consumers do from now on: enter() in a new phase, mark() in the same.
  __device__ __forceinline__ void enter(SpanKind kind, Phase phase, int layer) {
    ring.track.enter(kind, phase, layer, step);
  }
  __device__ __forceinline__ void mark(SpanKind kind) { ring.track.mark(kind); }

  __device__ __forceinline__ int position() const { return p.position + opaque(step); }
  // Which of the two sets in Shared::partials a phase writes. The publisher reads the sets in turn:
  // four phases a layer and one a token, so QKV, gate/up and the LM head write the set `even_turn`,
  // attention with O and down the set `odd_turn`.
  __device__ __forceinline__ int even_turn() const { return step & 1; }
  __device__ __forceinline__ int odd_turn() const { return (step & 1) ^ 1; }
};

// A bf16 pair of a vector that no block writes during the launch. It is returned unconverted,
// because a conversion would wait for the load.
__device__ __forceinline__ unsigned load_pair(const unsigned short* p) {
  return __ldg(reinterpret_cast<const unsigned*>(p));
}

// A phase's input, made from two elements of the residual per lane. Multiplied by the norm weight
// they are the warp's activations; their squares go to the publisher, which scales the dot products
// by 1 / rms.
struct NormInput {
  uint4 b[2];     // see warp_activations()
  float squares;  // sum over the elements of this lane and of lane ^ 16
};

template <typename L>
__device__ __forceinline__ NormInput warp_norm_input(const Lane& me, Shared<L>& s, float2 h,
                                                     unsigned weights) {
  NormInput x;
  x.squares = h.x * h.x + h.y * h.y;
  x.squares += shuffle_xor(x.squares, 16);
  warp_activations(me, s, h.x * low_bf16(weights), h.y * high_bf16(weights), x.b);
  return x;
}

// B operands of k step i (16 of the warp's 64 columns).
__device__ __forceinline__ unsigned first_operand(const uint4 (&b)[2], int i) {
  return (i & 1) != 0 ? b[i >> 1].z : b[i >> 1].x;
}
__device__ __forceinline__ unsigned second_operand(const uint4 (&b)[2], int i) {
  return (i & 1) != 0 ? b[i >> 1].w : b[i >> 1].y;
}

// Hands a warp's part of the block's 64 rows of O or down to the publisher: adds the columns of
// both planes and writes Shared::partials. d[m] holds rows 16 m .. 16 m + 15; all even columns are
// equal (high plane), and so are all odd ones (low plane).
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void hand_over_rows(Consumer<L, kAblation>& c, const Lane& me,
                                               const float (&d)[4][4]) {
  const int turn = c.odd_turn();
  float(*rows)[20] = c.s.partials[turn];
  rows[16 * me.j + me.row][me.warp] =
      select4(me.j, d[0][0] + d[0][1], d[1][0] + d[1][1], d[2][0] + d[2][1], d[3][0] + d[3][1]);
  rows[16 * me.j + 8 + me.row][me.warp] =
      select4(me.j, d[0][2] + d[0][3], d[1][2] + d[1][3], d[2][2] + d[2][3], d[3][2] + d[3][3]);
  ptx::named_arrive<kOneMore>(kPartials + turn);
}

}  // namespace mkbench::ring
