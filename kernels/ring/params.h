// What one launch of the ring megakernel is given. Shared by host and device.
#pragma once

#include "kernels/fault.h"
#include "kernels/ring/layout.h"
#include "kernels/weight_layout.h"

namespace mkbench {

// What the kernel leaves out, to show which term binds. Only kNone computes tokens.
enum class RingAblation {
  kNone,
  kNoWaits,  // nobody waits for another block: the memory roof of this stream
  kNoLoads   // nothing is streamed: the dependency chain alone
};

}  // namespace mkbench

namespace mkbench::ring {

// Slots of the ring: what shared memory holds. 11 took 3 us a token less than 10 (H200); from
// sm_120 on a block has 99 KiB, not 227.
inline constexpr int kMostRingSlots = 11, kSmallRingSlots = 3;
MKBENCH_HD constexpr int ring_slots(int compute_major) {
  return compute_major >= 12 ? kSmallRingSlots : kMostRingSlots;
}

// One way to stream: facts about a card, see tuning.h.
struct StreamPace {
  int copies_in_flight;  // of 16 KiB, 1 .. kRingSlots - 1
  int gap_cycles;        // least distance between two issues; 0 = none
};

// Tuning of one launch: which pace holds while a step's position is below `until`.
struct PaceRange {
  int until;
  StreamPace pace;
};
inline constexpr int kPaceRanges = 8;

// Copies of each residual accumulator, read by a quarter of the blocks each.
inline constexpr int kReplicas = 4;

// All pointers are device memory, but for `status`. bf16 values travel as 16 raw bits.
struct LaunchParams {
  const char* stream;              // weights, see slot_offset()
  char* kv;                        // (layers, kv_heads) of kv_head_bytes(max_context)
  const unsigned short* embed;     // (vocab, hidden)
  const unsigned short* norms;     // (2 * layers + 1, hidden): input, post-attention, .., final
  const unsigned short* qk_norms;  // (layers, 2, head_dim): q, k
  const RopePair* rope;            // (max_context, head_dim / 2)
  float* key_maxima;               // (layers, kv_heads) largest |k| of the rows so far

  // Exchange words, all zero at launch; see exchange.cuh.
  unsigned* qkv;                      // (kBlocks, 32)
  unsigned* swiglu;                   // (kBlocks, 32), 24 used
  unsigned* partials;                 // (groups, warps, members, 4 lanes) of 16 bytes
  unsigned* score_maxima;             // (groups, members) of 16 bytes: the slow path's
  unsigned* best;                     // (kBlocks) of 16 bytes
  unsigned* rows_written;             // (groups, members) steps whose KV rows are in memory
  unsigned long long* attention_out;  // (kReplicas, hidden) fixed-point accumulators
  unsigned long long* mlp_out;        // (kReplicas, hidden)

  const int* inputs;             // (input_count) ids of the first steps; then the step's before
  int* outputs;                  // (steps - first_output)
  float* logits;                 // null or (steps - first_output, vocab)
  float* hidden;                 // null or (layers, hidden) of the last step
  unsigned long long* token_ns;  // (steps + 1) global timer at each step's start and at the end
  unsigned long long* cycles;    // (2) block 0's clock at start and end
  unsigned long long* fault;     // 0 at launch; else what tells every wait to give up, fault_word.h
  KernelStatus* status;

  int layers;  // even
  int vocab;
  int max_context;
  int position;  // KV rows before the first step
  int steps;
  int input_count;
  int first_output;    // steps before it run without the LM head (prefill)
  int context_bias;    // 0; -1 plants the fault "newest row dropped"
  int stall_block;     // -1; a block that withholds its q, k, v (test of the watchdog)
  int split_from;      // from this position on the context is split over the group
  int slow_attention;  // 0; 1 takes the path with a maximum at every step (test)
  float eps;
  unsigned spin_limit_us;        // of one wait
  PaceRange paces[kPaceRanges];  // ascending; the last holds for all positions beyond
  StreamPace head_pace;          // while the LM head streams
};

}  // namespace mkbench::ring
