// Checks of model, GPU and free memory that every megakernel makes before it allocates.
#pragma once

#include <string>

#include "references/config.h"

namespace mkbench {

// A kernel and the grid that it is launched with.
struct LaunchConfig {
  const void* kernel = nullptr;
  int blocks = 0;
  int threads = 0;       // per block
  int shared_bytes = 0;  // dynamic, per block
};

// `engine`, in all functions: the name with which messages begin, e.g. "plain megakernel".

// A layer's dimensions, named as in config.json, e.g. "hidden_size 1024, ..., head_dim 128".
std::string layer_shape_text(const ModelShape& shape);

// The layer shapes that kernels compile in (layer_shapes.h), each with the models that have it.
std::string compiled_layer_shapes();

// Throws Error(kBadInput) unless 1 <= max_context <= max_position_embeddings.
void check_context(const std::string& engine, const ModelConfig& config, int max_context);

// Makes `gpu` the current device. Throws Error(kUnsupportedDevice) when there is no such device.
void use_device(const std::string& engine, int gpu);

// Throws Error(kEnvUnfit) when the current device has less free memory than `bytes` plus a reserve
// for the CUDA context. With positions > 0 (`bytes` include them, `bytes_per_position` each), the
// message says how many positions would fit.
void check_memory(const std::string& engine, int64_t bytes, int64_t bytes_per_position = 0,
                  int positions = 0);

// How many positions fit in `free` bytes; 0 if not even one. `bytes` is the total need, of which
// `positions` positions take `bytes_per_position` each.
int64_t fitting_positions(int64_t bytes, int64_t free, int64_t bytes_per_position, int positions);

// How many blocks of the launch the device `gpu` holds at a time; 0 if its shared memory is too small
// for one block. Grants the kernel its shared memory.
int co_resident_blocks(const LaunchConfig& launch, int gpu);

// Grants the kernel its shared memory and loads its code, which would otherwise be loaded in the
// first timed launch. Throws Error(kUnsupportedDevice) when the binary has no code for the current
// device `gpu`, or when the grid cannot be resident on it at once: its blocks would wait for each
// other for ever.
void require_co_resident(const std::string& engine, const LaunchConfig& launch, int gpu);

}  // namespace mkbench
