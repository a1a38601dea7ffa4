// Arguments of one launch of the plain megakernel. Shared by host and device.
#pragma once

#include "kernels/block_records.h"
#include "kernels/fault.h"
#include "kernels/timeline_events.h"
#include "kernels/weight_layout.h"

namespace mkbench::plain {

// All pointers are device memory, except `status` and `records` (host-mapped). bf16 values are 16 raw bits.
struct LaunchParams {
  const unsigned short* layers;  // slabs of LayerLayout::stride elements
  const unsigned short* embed;   // (vocab, hidden), indexed by token ids; or vectors that a caller
                                 // gives (input_count, hidden), indexed by `inputs`
  const unsigned short* head;    // (vocab, hidden); the embedding when tied
  const unsigned short* final_norm;  // (hidden)
  unsigned short* k_cache;           // (layers, kv_heads, max_context, head_dim)
  unsigned short* v_cache;           // (layers, kv_heads, max_context, head_dim)
  const RopePair* rope;              // (max_context, head_dim / 2)

  float* residual;           // (hidden)
  float* qkv;                // (qkv_width), before QK-norm and RoPE
  float* attention_max;      // (heads, kMaxSplits), log2 units
  float* attention_sum;      // (heads, kMaxSplits)
  float* attention_acc;      // (heads, kMaxSplits, head_dim), not yet divided by the sum
  float* swiglu;             // (intermediate)
  unsigned long long* best;  // (gridDim.x) best logit and lowest index of each block's rows

  const int* inputs;  // (input_count) ids of the first steps; a later step embeds the last output
  int* outputs;       // (steps - first_output)
  float* logits;      // null or (steps - first_output, vocab)
  float* hidden;      // null or (layers, hidden) of the last step
  float* normed;      // null or (steps - first_output, hidden), after the final norm
  unsigned long long* token_ns;  // (steps + 1) global timer at each step's start and at the end
  unsigned long long* cycles;    // (2) clock of block 0's multiprocessor at start and end

  unsigned* arrivals;  // exchange counter, 0 at launch, first_count in soaks
  unsigned* abort;     // 0 at launch; 1 makes every wait give up
  KernelStatus* status;

  int layer_count;
  int vocab;
  int max_context;
  int position;  // KV rows before the first step
  int steps;
  int input_count;
  int first_output;  // steps before this one run without the LM head (prefill)
  int context_bias;  // added to the attended positions; other than 0 in tests only
  int stall_block;   // a block that never arrives, in tests of the watchdog; otherwise -1
  float eps;
  unsigned long long spin_limit_ns;
  BlockRecords* records;
  // For soak instances only: the exchange counter's initial value, and delays before arrivals.
  unsigned first_count, delay_seed, delay_ns;
  TimelineBuffers timeline;  // set for the recording instance only (instances/recorded.cu)
};

}  // namespace mkbench::plain
