// Device memory that is released with its object, and host-mapped memory that a running kernel
// writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda_check.h"

namespace mkbench {

// `count` elements of T in device memory. Their contents are undefined at first.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t count) : count_(count) {
    if (count > 0) MKBENCH_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
  }
  DeviceBuffer(DeviceBuffer&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), count_(std::exchange(o.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(count_, o.count_);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(data_); }  // fails only after an error that has ended the context

  T* get() const { return data_; }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

  // Grows to at least `count` elements; old contents are lost.
  void reserve(size_t count) {
    if (count > count_) *this = DeviceBuffer(count);
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

// One T in page-locked memory that host and device both access.
template <typename T>
class MappedValue {
 public:
  MappedValue() {
    MKBENCH_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&host_), sizeof(T), cudaHostAllocMapped));
    if (cudaHostGetDevicePointer(reinterpret_cast<void**>(&device_), host_, 0) != cudaSuccess) {
      cudaFreeHost(host_);
      throw Error(ErrorKind::kCuda, "cudaHostGetDevicePointer: host memory cannot be mapped");
    }
  }
  MappedValue(const MappedValue&) = delete;
  MappedValue& operator=(const MappedValue&) = delete;
  ~MappedValue() { cudaFreeHost(host_); }

  T* host() const { return host_; }
  T* device() const { return device_; }

 private:
  T* host_ = nullptr;
  T* device_ = nullptr;
};

}  // namespace mkbench
