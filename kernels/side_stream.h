// A second stream, for copies while a kernel that may never end runs on the default stream.
#pragma once

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/cuda_check.h"

namespace mkbench {

// Construct it before the first launch: a kernel that runs on the default stream would block its constructor.
class SideStream {
 public:
  // `bytes`: the most that read() copies.
  explicit SideStream(size_t bytes) : bytes_(bytes) {
    MKBENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    if (bytes > 0) MKBENCH_CUDA(cudaHostAlloc(&pinned_, bytes, cudaHostAllocDefault));
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  ~SideStream() {
    cudaFreeHost(pinned_);
    cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const { return stream_; }

  // Copies `bytes` of device memory of `gpu`; nullopt if the device does not answer within a second. May
  // be called from a thread that has used no device yet.
  std::optional<std::vector<char>> read(int gpu, const void* from, size_t bytes) const {
    if (bytes > bytes_ || cudaSetDevice(gpu) != cudaSuccess) return std::nullopt;
    if (cudaMemcpyAsync(pinned_, from, bytes, cudaMemcpyDeviceToHost, stream_) != cudaSuccess)
      return std::nullopt;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    cudaError_t state = cudaStreamQuery(stream_);
    while (state == cudaErrorNotReady && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      state = cudaStreamQuery(stream_);
    }
    if (state != cudaSuccess) return std::nullopt;
    std::vector<char> copy(bytes);
    std::memcpy(copy.data(), pinned_, bytes);
    return copy;
  }

 private:
  const size_t bytes_;
  cudaStream_t stream_ = nullptr;
  void* pinned_ = nullptr;
};

}  // namespace mkbench
