// The host twin: plain's phases, partition and exchange protocol as tasks on CPU threads. It tests
// schedule, watchdog and gates without a GPU; it is not fast.
#pragma once

#include <memory>

#include "references/engine.h"
#include "references/weights.h"

namespace mkbench {

struct HostTwinOptions {
  int max_context = 4096;
  int blocks = 8;         // logical blocks; each runs until it waits
  int threads = 0;        // 0 = min(cores, 8)
  int stall_ms = 10000;   // a wait in which no block makes progress for this long is a fault
  int stall_block = -1;   // test hook: this block never arrives (the watchdog must see it)
  int stall_launch = -1;  // test hook: the launch_count() before that launch; -1 = every launch
  PlantedFault fault = PlantedFault::kNone;
};

// Throws Error(kBadInput) for impossible options, Error(kHang) from decode()/prefill() when a wait
// runs out.
std::unique_ptr<Engine> make_host_twin(ModelWeights weights, const HostTwinOptions& options = {});

}  // namespace mkbench
