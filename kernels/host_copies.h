// Copies a model's tensors from pageable host memory into device memory with several threads. cudaMemcpy stages
// pageable memory in page-locked buffers that one thread fills: opening ring for Qwen3-1.7B took 0.85 to 0.95 s with
// cudaMemcpy, and 0.44 to 0.58 s with several threads (H100, 2026-11-25, two sessions).
#pragma once

#include <cstddef>
#include <vector>

namespace mkbench {

struct HostCopy {
  void* to;          // in device memory
  const void* from;  // in host memory
  size_t bytes;
};

// Returns once all copies have arrived; work that the caller has queued before comes first. Throws Error(kCuda).
void copy_to_device(const std::vector<HostCopy>& copies);

}  // namespace mkbench
