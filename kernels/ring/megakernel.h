// The ring megakernel as an engine. Weights stream through a ring in shared memory, and every
// word that blocks exchange shows by itself whether it is ready (exchange.cuh), so that memory
// never waits for the dependency chain. It needs sm_90a or later, and an even number of layers, at
// most 64, of a shape that rows.h accepts. The kernel is in kernel.cuh.
#pragma once

#include <memory>
#include <string>

#include "kernels/ring/params.h"
#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

struct RingOptions {
  int gpu = 0;
  int max_context = 4096;   // positions of KV cache to allocate
  double spin_scale = 1.0;  // multiplies the time bound of every wait (sanitizers, debuggers)
  int stall_block = -1;  // test hook: this block withholds its q, k, v (the watchdog must see it)
  int split_from = -1;   // position from which the context is split; -1 = by the row
  bool slow_attention = false;  // test hook: attention's slow path in every layer
  std::string tuning = {};      // the row to use (tuning_row()); empty: the table's
  // These replace the paces of that row. With copies_in_flight = 0 the row's pace holds,
  // whatever gap_cycles says.
  ring::StreamPace pace{0, 0};       // for the layers, at all positions
  ring::StreamPace head_pace{0, 0};  // for the LM head
  RingAblation ablation = RingAblation::kNone;
  PlantedFault fault = PlantedFault::kNone;
  // The kernel instance to launch (e.g. delayed_kernel()); null: the instance for `ablation`.
  const void* kernel = nullptr;
};

// All of a ring engine's capabilities() but device and max_context.
EngineCapabilities ring_capabilities();

// Bytes of device memory that make_ring() will take. Throws Error(kBadInput) for a model without a
// layout.
int64_t ring_device_bytes(const ModelConfig& config, const RingOptions& options);

// Why the ring megakernel cannot run this model on this GPU; empty if it can. Allocates nothing.
std::string ring_obstacle(const ModelConfig& config, int gpu);

// Uploads and repacks the weights. Throws Error(kUnsupportedDevice) if this binary has no ring code
// for the GPU, the GPU's shared memory is too small for the layer shape or the grid cannot be
// co-resident, Error(kBadInput) with every dimension that no layout supports, Error(kEnvUnfit) when
// memory does not suffice, Error(kCuda). decode() and prefill() throw Error(kHang).
std::unique_ptr<Engine> make_ring(const ModelWeights& weights, const RingOptions& options = {});

// Switches a ring engine to the paces, split_from, slow_attention and ablation of `options` and
// ignores the other options; weights and KV rows stay. For diagnostics and tuning. Throws
// Error(kBadInput) for an engine that make_ring() did not make.
void retune_ring(Engine& engine, const RingOptions& options);

}  // namespace mkbench
