// The parameters of one launch of the ring megakernel. Shared by host and device.
#pragma once

#include "kernels/fault.h"
#include "kernels/ring/layout.h"
#include "kernels/timeline_events.h"
#include "kernels/weight_layout.h"

namespace mkbench {

// Diagnostic variants of the kernel that leave a part out, to show whether memory or the dependency
// chain limits the time. Only kNone and kRecorded compute tokens.
enum class RingAblation {
  kNone,
  kNoWaits,  // no block waits for another one: what is left is the time of the memory stream
  kNoLoads,  // nothing is streamed: what is left is the dependency chain
  kDelayed,  // for tests of post-mortems: stall_block stops for ever at the last layer
  kRecorded  // nothing is left out, and the timeline is recorded
};

MKBENCH_HD constexpr bool computes_tokens(RingAblation ablation) {
  return ablation == RingAblation::kNone || ablation == RingAblation::kRecorded;
}

}  // namespace mkbench

namespace mkbench::ring {

// Slots of the ring, as many as shared memory holds, but at most 11, which took 3 us a token less
// than 10 (Qwen3-0.6B, H200).
inline constexpr int kMostRingSlots = 11;
template <typename L>
MKBENCH_HD constexpr int ring_slots(int compute_major) {
  const int room = (shared_limit(compute_major) - L::kStagingBytes) / kSlotBytes;
  return room < kMostRingSlots ? room : kMostRingSlots;
}
// Whether L's kernel fits into the shared memory of this major compute capability.
template <typename L>
MKBENCH_HD constexpr bool has_room(int compute_major) {
  return ring_slots<L>(compute_major) >= L::kLeastRingSlots;
}
// Whether a warp looks several slots ahead and skips slots of the LM head: only in a held shape
// whose ring has room for all slots of its largest fetch(), gate/up's (kSmallRing in block.cuh).
template <typename L>
MKBENCH_HD constexpr bool skips_head_slots(int compute_major) {
  return L::kHeld && ring_slots<L>(compute_major) >= L::kGateUpSlots;
}
// The most copies in flight while the LM head streams.
template <typename L>
MKBENCH_HD constexpr int most_head_copies(int compute_major) {
  const int slots = ring_slots<L>(compute_major);
  return skips_head_slots<L>(compute_major) ? slots - 4 : slots - 1;
}

// How fast the loader streams. The best values depend on the card, see tuning.h.
struct StreamPace {
  int copies_in_flight;  // copies of 16 KiB, 1 .. ring_slots - 1
  int gap_cycles;        // least time between the issues of two copies; 0 = none
};

// The pace of steps whose position is below `until`.
struct PaceRange {
  int until;
  StreamPace pace;
};
inline constexpr int kPaceRanges = 8;

// Copies of each residual accumulator. A quarter of the blocks reads each of them.
inline constexpr int kReplicas = 4;

// All pointers but `status` are device memory. bf16 values are passed as 16 raw bits.
struct LaunchParams {
  const char* stream;              // weights: slots, see slot_offset()
  char* kv;                        // (layers, kv_heads) pieces of kv_head_bytes(max_context)
  const unsigned short* embed;     // (vocab, hidden)
  const unsigned short* norms;     // (2 * layers + 1, hidden): input, post-attention, .., final
  const unsigned short* qk_norms;  // (layers, 2, head_dim): q, k
  const RopePair* rope;            // (max_context, head_dim / 2)
  float* key_maxima;               // (layers, kv_heads) largest |k| of the rows so far

  // Exchange words, all zero at launch; see exchange.cuh.
  unsigned* qkv;           // (kBlocks, L::kQkvRows) q, k, v before norm and RoPE
  unsigned* swiglu;        // (kBlocks, L::kSwigluStride)
  unsigned* partials;      // (groups, warps, members / 2, pairs of heads, 2, 4 lanes) of 16 bytes
  unsigned* score_maxima;  // (groups, members, pairs of heads) of 16 bytes: attention's slow path
  unsigned* best;          // (kBlocks) of 16 bytes: best key of the LM head
  unsigned* rows_written;  // (groups, members) 1 + the last step whose KV row is written
  unsigned long long* attention_out;  // (kReplicas, hidden) fixed-point accumulators
  unsigned long long* mlp_out;        // (kReplicas, hidden)

  const int* inputs;             // (input_count) ids of the first steps; later steps take the last
                                 // step's output
  int* outputs;                  // (steps - first_output)
  float* logits;                 // null or (steps - first_output, vocab)
  float* hidden;                 // null or (layers, hidden) of the last step
  unsigned long long* token_ns;  // (steps + 1) global timer at each step's start and at the end
  unsigned long long* cycles;    // (2) block 0's clock at start and end
  unsigned long long* fault;     // 0 at launch; not 0: every wait gives up, see fault_word.h
  KernelStatus* status;

  int layers;  // even
  int vocab;
  int max_context;
  int position;  // KV rows before the first step
  int steps;
  int input_count;
  int first_output;    // steps before it run without the LM head (prefill)
  int context_bias;    // 0; -1 plants the fault "newest row dropped"
  int stall_block;     // -1, or a block that withholds its q, k, v (test of the watchdog)
  int split_from;      // from this position on the context is split over the group's blocks
  int slow_attention;  // 0; 1 takes attention's slow path in every layer (test)
  float eps;
  unsigned spin_limit_us;        // upper bound for a single spin-wait
  PaceRange paces[kPaceRanges];  // ascending; the last one has no upper bound
  StreamPace head_pace;          // from the last layer's down slots to the step's end
  TimelineBuffers timeline;      // set for the recording instance only (instances/recorded.cu)
};

// The most times that a block of a recorded launch reads both clocks (timeline_events.h) in a step.
// Under load a multiprocessor's clock changes pace in microseconds: one reading a token is too few.
inline constexpr int kReadingsPerStep = 128;

// The tracks of a block in a timeline.
enum Track : int { kConsumerTrack, kPublisherTrack, kLoaderTrack, kStatisticsTrack, kTracks };

}  // namespace mkbench::ring
