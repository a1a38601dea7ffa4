// The host twin: the phases, partition and exchange protocol of the plain megakernel as tasks on
// CPU threads. Tests of schedule, watchdog and gates use it in place of a GPU; it is not built for
// speed.
#pragma once

#include <memory>

#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

struct HostTwinOptions {
  int max_context = 4096;
  int blocks = 8;         // logical blocks, which take the place of CUDA's
  int threads = 0;        // 0 = min(cores, 8)
  int stall_ms = 10000;   // Error(kHang) when no block has arrived at an exchange for this long
  int stall_block = -1;   // for tests of the watchdog: this block never arrives at an exchange
  int stall_launch = -1;  // launch_count() before the launch that stalls; -1 = every launch
  PlantedFault fault = PlantedFault::kNone;
};

// All of a host twin's capabilities() but max_context.
EngineCapabilities host_twin_capabilities();

// Where the running decode() or prefill() of a host twin keeps its position; -1 before the first.
const volatile int32_t* host_twin_position(const Engine& twin);

// Throws Error(kBadInput) for impossible options; decode() and prefill() throw Error(kHang) after
// stall_ms without an arrival.
std::unique_ptr<Engine> make_host_twin(ModelWeights weights, const HostTwinOptions& options = {});

}  // namespace mkbench
