#include "kernels/host_copies.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>

#include "kernels/cuda_check.h"
#include "references/base/parallel.h"

namespace mkbench {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr int kMostThreads = 8;
// For fewer bytes, page-locking the buffers takes longer than using them saves.
constexpr size_t kLeastBytes = size_t{256} << 20;

std::vector<HostCopy> in_pieces(const std::vector<HostCopy>& copies) {
  std::vector<HostCopy> pieces;
  for (const HostCopy& c : copies) {
    for (size_t at = 0; at < c.bytes; at += kPieceBytes) {
      pieces.push_back({static_cast<std::byte*>(c.to) + at,
                        static_cast<const std::byte*>(c.from) + at,
                        std::min(kPieceBytes, c.bytes - at)});
    }
  }
  return pieces;
}

void copy_plainly(const HostCopy& c) {
  MKBENCH_CUDA(cudaMemcpy(c.to, c.from, c.bytes, cudaMemcpyHostToDevice));
}

// Two buffers that one thread fills in turn: while one is copied to the device, the other is filled.
class Stage {
 public:
  Stage() {
    MKBENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (Buffer& b : buffers_) {
      if (cudaEventCreateWithFlags(&b.copied, cudaEventDisableTiming) != cudaSuccess ||
          cudaHostAlloc(&b.host, kPieceBytes, cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();  // no page-locked memory is left: copy() uses cudaMemcpy
        usable_ = false;
      }
    }
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() {
    cudaStreamSynchronize(stream_);
    for (const Buffer& b : buffers_) {
      if (b.host != nullptr) cudaFreeHost(b.host);
      if (b.copied != nullptr) cudaEventDestroy(b.copied);
    }
    cudaStreamDestroy(stream_);
  }

  void copy(const HostCopy& c) {
    if (!usable_) return copy_plainly(c);
    Buffer& b = buffers_[next_];
    next_ = 1 - next_;
    MKBENCH_CUDA(cudaEventSynchronize(b.copied));  // returns at once before the first record
    std::memcpy(b.host, c.from, c.bytes);
    MKBENCH_CUDA(cudaMemcpyAsync(c.to, b.host, c.bytes, cudaMemcpyHostToDevice, stream_));
    MKBENCH_CUDA(cudaEventRecord(b.copied, stream_));
  }

  void finish() { MKBENCH_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  struct Buffer {
    void* host = nullptr;
    cudaEvent_t copied = nullptr;
  };
  cudaStream_t stream_ = nullptr;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
  bool usable_ = true;
};

}  // namespace

void copy_to_device(const std::vector<HostCopy>& copies) {
  size_t bytes = 0;
  for (const HostCopy& c : copies) bytes += c.bytes;
  if (bytes < kLeastBytes) {
    for (const HostCopy& c : copies) copy_plainly(c);
    return;
  }
  int device = 0;
  MKBENCH_CUDA(cudaGetDevice(&device));
  // The stages' streams do not wait for the default stream, where the caller may have cleared the memory.
  MKBENCH_CUDA(cudaDeviceSynchronize());
  const std::vector<HostCopy> pieces = in_pieces(copies);
  const auto count = static_cast<int64_t>(pieces.size());
  const int64_t threads = std::min(kMostThreads, thread_count(0));
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;  // the first one; guarded by mutex
  // One chunk per thread, so that each thread makes its buffers once.
  const int64_t chunk = (count + threads - 1) / threads;
  parallel_chunks(count, chunk, static_cast<int>(threads), [&](int64_t begin, int64_t end) {
    try {
      MKBENCH_CUDA(cudaSetDevice(device));
      Stage stage;
      for (int64_t i = begin; i < end && !failed; ++i) stage.copy(pieces[static_cast<size_t>(i)]);
      stage.finish();
    } catch (...) {
      failed = true;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace mkbench
