// Copies of a model's tensors from ordinary host memory into device memory, side by side. cudaMemcpy takes such
// memory through page-locked buffers that one thread fills: 8 GB take 1.6 s (H100, 2026-11-23).
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
