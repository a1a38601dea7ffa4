// A layer of a streamed shape: a phase consists of rounds of some tiles of 16 rows, whose weights pass
// through the registers in chunks (struct Rounds in layer_plan.h; phases.cuh).
//
// One block in time, from top to bottom: one layer, then the end of a step. Signs: see kernel.cuh; and
// [t] is the set of Shared::partials and of kPartials, t = Consumer::streamed_turn, which each hand-over
// changes.
//
//  loader         consumers                                     publisher         statistics
//  (1 thread)     (16 warps)                                    (1 warp)          (1 warp)
//  ---------      ------------------------                      ----------------- ---------------
//                 stream_qkv                <-- kPartialsRead - after down (1)
//  QKV        ==> fetch the first chunk
//                 layer 0: embed            <-- kTokenDone ---- after token (2)
//                 others:  await ~mlp_out
//                 input to activations
//  QKV        ==> further chunks
//                 partial sums [t]          -- kPartials + t -> sum, /rms
//                                                               publish ~qkv
//                 stream_attention_out      <-- kPartialsRead -
//  K tiles    ==> K of the first turn
//                 await ~qkv, RoPE
//                 share q, k, v             -- kHeadVectors --------------------> norms, current
//                 turns as in held/layer.cuh                                      score, R,
//  K, V tiles ==> scores, exponentials,     <-- kStatistics --------------------- max|k|, KV write
//                 kConsumers, values
//                 publish ~partials (3)
//  O          ==> fetch the first chunk
//                 await ~partials (3)
//  O          ==> each round: chunks,
//                 await the round before    <-- kPartialsRead - (4)
//                 partial sums [t]          -- kPartials + t -> sum
//                                                               add ~attention_out
//                 stream_gate_up            <-- kPartialsRead -
//  gate/up    ==> fetch the first chunk
//                 await ~attention_out
//                 input to activations
//  gate/up    ==> each round: chunks,
//                 await the round before    <-- kPartialsRead - (4)
//                 partial sums [t]          -- kPartials + t -> sum, /rms, SwiGLU
//                                                               publish ~swiglu
//                 the half tile, if there is one: one round more
//                 stream_down               <-- kPartialsRead -
//  down       ==> fetch the first chunk
//                 await ~swiglu
//                 input to activations
//  down       ==> each round: chunks,
//                 await the round before    <-- kPartialsRead - (4)
//                 partial sums [t]          -- kPartials + t -> sum
//                                                               add ~mlp_out
//  ------------------------------- after the last layer of a step -------------------------------
//                 stream_lm_head            <-- kPartialsRead -                   publish, await
//                 await ~mlp_out                                                  ~rows_written
//                 input to activations                                            rows_seen (5)
//  head rows  ==> each round: chunks,
//                 await the round before    <-- kPartialsRead - (4)
//                 partial sums [t]          -- kPartials + t -> best row; after the
//                                                               last: publish ~best
//                                                               await all ~best
//                 (next step's stream_qkv)  <-- kTokenDone ---- token
//                                                               -- kTokenSeen ->  next step, or end
//
// (1) Not in layer 0. (2) In layer 0 only, from the second step on; a chunk is fetched before it.
// (3) Only with a split: the blocks of a group exchange partial results.
// (4) Not before the phase's first round, which has waited at its beginning.
// (5) See note (6) of held/layer.cuh. Its note (4), on the slow path, applies to these turns too.
#pragma once

#include "kernels/ring/streamed/phases.cuh"

namespace mkbench::ring {

// The consumers' part of one layer. Returns false when the launch has ended.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ bool streamed_layer(Consumer<L, kAblation>& c, int layer) {
  if (!stream_qkv(c, layer)) return false;
  if (c.position() >= c.p.split_from) {
    stream_attention_out<true>(c, layer);
  } else {
    stream_attention_out<false>(c, layer);
  }
  stream_gate_up(c, layer);
  stream_down(c, layer);
  return true;
}

}  // namespace mkbench::ring
