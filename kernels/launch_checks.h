// What every megakernel asks before it takes any memory: the model, the GPU, the room on it.
#pragma once

#include <string>

#include "references/config.h"

namespace mkbench {

// A kernel and the grid that it is launched with.
struct LaunchConfig {
  const void* kernel = nullptr;
  int blocks = 0;
  int threads = 0;       // of a block
  int shared_bytes = 0;  // dynamic, of a block
};

// In all of these `engine` is the name that the messages begin with, e.g. "plain megakernel".

// " field found x wanted y;" for each dimension of a layer that differs; empty when none does.
std::string layer_shape_differences(const ModelShape& found, const ModelShape& wanted);

// Throws Error(kBadInput) unless 1 <= max_context <= max_position_embeddings.
void check_context(const std::string& engine, const ModelConfig& config, int max_context);

// Makes `gpu` the current device. Throws Error(kUnsupportedDevice) when there is none of that
// number.
void use_device(const std::string& engine, int gpu);

// Throws Error(kEnvUnfit) when the current device has less free memory than `bytes` and what a
// context takes besides.
void check_memory(const std::string& engine, int64_t bytes);

// Grants the kernel its shared memory and loads its code: a lazy load would fall into the first
// timed launch. Blocks that are not resident at once would wait for each other for ever: throws
// Error(kUnsupportedDevice) when the grid does not fit the current device `gpu`, or when there is
// no code for it.
void require_co_resident(const std::string& engine, const LaunchConfig& launch, int gpu);

}  // namespace mkbench
