// A layer of a held shape: a warp fetches all of its share of a phase's weights into registers before
// the phase waits for its input. The only variant that fits the 99 KiB of shared memory of sm_120.
//
// One block in time, from top to bottom: one layer, then the end of a step. Signs: see kernel.cuh.
//
//  loader         consumers                                     publisher         statistics
//  (1 thread)     (16 warps)                                    (1 warp)          (1 warp)
//  ---------      ------------------------                      ----------------- ---------------
//                 phase_qkv                 <-- kPartialsRead - after down (1)
//  QKV 4      ==> fetch weights
//                 layer 0: embed            <-- kTokenDone ---- after token (2)
//                 others:  await ~mlp_out
//                 partial sums [e]          -- kPartials + e -> sum, /rms
//                                                               publish ~qkv
//                 phase_attention_out       <-- kPartialsRead -
//  O 2        ==> fetch weights (3)
//  K tiles    ==> K of the first turn
//                 await ~qkv, RoPE
//                 share q, k, v             -- kHeadVectors --------------------> norms, current
//                 kConsumers                                                      score, R
//                 scores of the first turn  <-- kStatistics ---------------------
//                 exponentials                                                    max|k|, KV write
//                 kConsumers                                                      by one member
//  V tiles    ==> values
//  K, V tiles ==> each further turn: K,
//                 scores, exponentials,
//                 kConsumers, values (4)
//                 publish ~partials (5)
//  O 2        ==> fetch weights (5)
//                 await ~partials (5)
//                 partial sums [o]          -- kPartials + o -> sum
//                                                               add ~attention_out
//                 phase_gate_up             <-- kPartialsRead -
//  gate/up 6  ==> fetch weights
//                 await ~attention_out
//                 partial sums [e]          -- kPartials + e -> sum, /rms, SwiGLU
//                                                               publish ~swiglu
//                 phase_down                <-- kPartialsRead -
//  down 3     ==> fetch weights
//                 await ~swiglu
//                 partial sums [o]          -- kPartials + o -> sum
//                                                               add ~mlp_out
//  ------------------------------- after the last layer of a step -------------------------------
//                 phase_lm_head             <-- kPartialsRead -                   publish, await
//                 await ~mlp_out                                                  ~rows_written
//                 kConsumers                                                      rows_seen (6)
//  head rows  ==> dot products
//                 best rows [e]             -- kPartials + e -> publish ~best
//                                                               await all ~best
//                 (next step's phase_qkv)   <-- kTokenDone ---- token
//                                                               -- kTokenSeen ->  next step, or end
//
// (1) Not in layer 0. (2) In layer 0 only, from the second step on; weights are fetched before it.
// (3) Only without a split of the context; the loader then streams O before K and V.
// (4) On the slow path each turn has one more kConsumers, before its exponentials, and with a split
//     the blocks of a group exchange ~score_maxima after the last turn.
// (5) Only with a split: the blocks of a group exchange partial results.
// (6) Set once ~rows_written has arrived; before K and V of the next step's first layer the loader
//     waits for Shared::rows_seen.
#pragma once

#include "kernels/ring/held/down.cuh"
#include "kernels/ring/held/gate_up.cuh"
#include "kernels/ring/held/lm_head.cuh"
#include "kernels/ring/held/o_proj.cuh"
#include "kernels/ring/held/qkv.cuh"

namespace mkbench::ring {

// The consumers' part of one layer. Returns false when the launch has ended.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ bool held_layer(Consumer<L, kAblation>& c, int layer) {
  if (!phase_qkv(c, layer)) return false;
  if (c.position() >= c.p.split_from) {
    phase_attention_out<true>(c, layer);
  } else {
    phase_attention_out<false>(c, layer);
  }
  phase_gate_up(c, layer);
  phase_down(c, layer);
  return true;
}

}  // namespace mkbench::ring
