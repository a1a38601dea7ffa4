// The plain megakernel: one persistent cooperative launch decodes n tokens (embed, every layer, LM
// head, argmax). sm_80 and later. Its phases also run as kernels of a CUDA graph, the baseline that
// shows what one launch gives; sm_90 and later.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

// What decodes a token: a share of one launch, or a graph of a kernel for each phase, each of which
// begins when the one before it has ended, or earlier by programmatic dependent launch.
// `kernel`, `stall_block`, `spin_scale` and faults inside of kernels are for a launch alone.
enum class PlainLaunch { kOne, kGraph, kGraphOverlapping };
constexpr std::string_view plain_name(PlainLaunch launch) {
  if (launch == PlainLaunch::kOne) return "plain";
  return launch == PlainLaunch::kGraph ? "graph-serial" : "graph-pdl";
}

struct PlainOptions {
  PlainLaunch launch = PlainLaunch::kOne;
  int gpu = 0;
  int max_context = 4096;   // positions of KV cache to allocate
  int blocks = 0;           // grid size; 0 = one block per multiprocessor
  double spin_scale = 1.0;  // multiplies the bound of every wait (sanitizers, debuggers)
  int stall_block = -1;     // for tests of the watchdog: this block never arrives at an exchange
  PlantedFault fault = PlantedFault::kNone;
  // The kernel instance to launch, compiled for the layer shape of these weights (e.g.
  // faulty_kernel()); null for the instance that ships.
  const void* kernel = nullptr;
};

// All of a plain engine's capabilities() but device and max_context.
EngineCapabilities plain_capabilities(PlainLaunch launch = PlainLaunch::kOne);

// Bytes of device memory that make_plain() allocates.
int64_t plain_device_bytes(const ModelConfig& config, const PlainOptions& options);

// The architectures that this binary was built for, e.g. "80 86 89 90a 100a 120a".
std::string plain_architectures();

// Uploads the weights. Throws Error(kUnsupportedDevice) when there is no GPU that this binary has
// code for or the grid cannot be co-resident, Error(kBadInput) with the compiled shapes when the
// layer shape is not compiled in, Error(kEnvUnfit) when memory does not suffice, and Error(kCuda).
// decode() and prefill() throw Error(kHang) when a wait expires.
std::unique_ptr<Engine> make_plain(const ModelWeights& weights, const PlainOptions& options = {});

}  // namespace mkbench
