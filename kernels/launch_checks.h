// Checks of model, GPU and free memory that every megakernel makes before it allocates.
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

// In all functions `engine` is the name that the messages begin with, e.g. "plain megakernel".

// Returns " field found x wanted y;" for each dimension of a layer that differs, or nothing.
std::string layer_shape_differences(const ModelShape& found, const ModelShape& wanted);

// Throws Error(kBadInput) unless 1 <= max_context <= max_position_embeddings.
void check_context(const std::string& engine, const ModelConfig& config, int max_context);

// Makes `gpu` the current device. Throws Error(kUnsupportedDevice) when there is no such device.
void use_device(const std::string& engine, int gpu);

// Throws Error(kEnvUnfit) when the current device has less free memory than `bytes` plus what a
// context takes.
void check_memory(const std::string& engine, int64_t bytes);

// Grants the kernel its shared memory and loads its code, which would otherwise be loaded in the
// first timed launch. Throws Error(kUnsupportedDevice) when the binary has no code for the current
// device `gpu`, or when the grid cannot be resident on it at once: its blocks would wait for each
// other for ever.
void require_co_resident(const std::string& engine, const LaunchConfig& launch, int gpu);

}  // namespace mkbench
