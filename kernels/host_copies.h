// Copies of a model's tensors from ordinary host memory into device memory, side by side. cudaMemcpy takes such
// memory through page-locked buffers that one thread fills: ring was opened for Qwen3-1.7B in 0.85 to 0.95 s by it, and
// in 0.44 to 0.58 s by several threads (H100, 2026-11-25, two visits).
#pragma once

#include <cstddef>
#include <vector>

namespace mkbench {

struct HostCopy {
  void* to;          // in device memory
  const void* from;  // in host memory
  size_t bytes;
};

// Returns once everything is there, whatever the caller has given to the device before. Throws Error(kCuda).
void copy_to_device(const std::vector<HostCopy>& copies);

}  // namespace mkbench
