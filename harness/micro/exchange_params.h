// What a launch of an exchange microbenchmark is given and leaves behind. Shared by host and
// device.
#pragma once

#include "harness/device/roofline.h"
#include "kernels/plain/params.h"
#include "kernels/ring/params.h"

namespace mkbench::micro {

// The ways in which blocks hand a vector to each other.
enum class Protocol {
  kCounter,      // fp32 vector; a grid-wide counter says that it is there (the plain megakernel)
  kEpoch64,      // 64-bit words {fp32, 32-bit epoch}
  kEpoch32,      // 32-bit words {24 bits of an fp32, 8-bit epoch}, in groups of 16 blocks
  kPartial128,   // 16-byte words of attention partials, in groups of 16 blocks
  kFixedPoint1,  // 64-bit fixed-point sums of 8 contributions
  kFixedPoint4,  // the same, in 4 replicas that a quarter of the blocks read each
  kCount
};

inline constexpr int kExchangeThreads = 512;
inline constexpr int kVectorSize = 2 * kExchangeThreads;  // the residual stream's
// One array a round parity: who publishes round r has seen all of round r - 1, and so everybody has
// finished reading round r - 2.
inline constexpr size_t kArrayBytes = 256 * 1024;
static_assert(kArrayBytes >= 8 * ring::kReplicas * kVectorSize);  // fixed-point words
static_assert(kArrayBytes >= 16 * 64 * ring::kBlocks);            // partials
static_assert(kVectorSize == ring::kHidden);

// All pointers are device memory, zero at launch, but for the two status words (host-mapped).
struct ExchangeParams {
  plain::LaunchParams plain;  // what the counter's waits need: arrivals, fault word, bound
  ring::LaunchParams ring;    // what all other waits need: fault word, bound
  char* words;                // 2 arrays of kArrayBytes
  unsigned rounds;
  unsigned* round_cycles;         // (rounds) of block 0
  unsigned long long* window_ns;  // (2) global timer of block 0 before the first and after the last
  unsigned* wrong;                // threads that read a wrong value
  unsigned* multiprocessors;      // (blocks) who ran where
  unsigned* end_load;             // set to 1 at the end
};

// The load: one block a multiprocessor streams until it is told to end.
struct LoadReport {
  unsigned long long copies;  // 0 when one never arrived
  unsigned long long begin_ns, end_ns;
};
struct LoadParams {
  const char* buffer;
  unsigned copies_in_buffer;
  BulkPlan plan;
  const unsigned* end_load;
  unsigned* started;            // blocks that are running, 0 at launch
  int* all_running;             // host-mapped, set to 1
  LoadReport* reports;          // (blocks)
  unsigned long long limit_ns;  // ends by itself then, whatever happens
};

// Host's view of the device translation unit.
const void* exchange_kernel(Protocol protocol);  // one ExchangeParams, kExchangeThreads
const void* load_kernel();                       // one LoadParams, 32 threads, the plan's ring

}  // namespace mkbench::micro
