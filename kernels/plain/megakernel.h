// The plain megakernel: one persistent cooperative launch decodes n tokens (embed, every layer, LM
// head, argmax). sm_80 and later.
#pragma once

#include <memory>
#include <string>

#include "references/engine.h"
#include "references/weights.h"

namespace mkbench {

struct PlainOptions {
  int gpu = 0;
  int max_context = 4096;   // positions of KV cache to allocate
  int blocks = 0;           // grid size; 0 = one block per multiprocessor
  double spin_scale = 1.0;  // multiplies the bound of every wait (sanitizers, debuggers)
  int stall_block =
      -1;  // test hook: this block never arrives at one exchange (the watchdog must see it)
  PlantedFault fault = PlantedFault::kNone;
  // Another instance of the kernel for these weights' shape (one with fault hooks); null: the one
  // that ships.
  const void* kernel = nullptr;
};

// Bytes of device memory that make_plain() will take.
int64_t plain_device_bytes(const ModelConfig& config, const PlainOptions& options);

// The architectures that this binary holds code for, e.g. "80 86 89 90a 100a 120a" (from the
// build).
std::string plain_architectures();

// Uploads the weights. Throws Error(kUnsupportedDevice) without a GPU that this binary has code for
// or when the grid cannot be co-resident, Error(kBadInput) listing every differing dimension when
// the shape is not compiled in, Error(kEnvUnfit) when memory does not suffice, Error(kCuda); and
// Error(kHang) from decode()/prefill().
std::unique_ptr<Engine> make_plain(const ModelWeights& weights, const PlainOptions& options = {});

}  // namespace mkbench
