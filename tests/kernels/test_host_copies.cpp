// kernels/host_copies.cpp against a stand-in for CUDA's run-time, whose streams copy late: a buffer that is filled again
// too early, a piece that is left out and an error in a thread show without a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/host_copies.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

namespace {

// Its copies take place when somebody waits for them, or at last when it goes.
struct LateStream {
  std::mutex mutex;
  std::deque<std::function<void()>> waiting;
  size_t added = 0, done = 0;

  void run_until(size_t count) {
    const std::lock_guard lock(mutex);
    for (; done < count; ++done) {
      waiting.front()();
      waiting.pop_front();
    }
  }
};

struct Event {
  LateStream* stream = nullptr;
  size_t after = 0;
};

std::atomic<int> async_copies{0}, failing_copy{-1}, pinned{0};
std::atomic<bool> no_page_locked{false};

LateStream& late(cudaStream_t stream) { return *reinterpret_cast<LateStream*>(stream); }
Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

}  // namespace

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorStandIn"; }
const char* cudaGetErrorString(cudaError_t) { return "a stand-in's error"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new LateStream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  late(stream).run_until(late(stream).added);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &late(stream);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event_of(event) = {&late(stream), late(stream).added};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Event& e = event_of(event);
  if (e.stream != nullptr) e.stream->run_until(e.after);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** host, size_t bytes, unsigned) {
  *host = nullptr;
  if (no_page_locked) return cudaErrorMemoryAllocation;
  ++pinned;
  *host = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* host) {
  --pinned;
  std::free(host);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (async_copies.fetch_add(1) == failing_copy) return cudaErrorIllegalAddress;
  LateStream& s = late(stream);
  const std::lock_guard lock(s.mutex);
  s.waiting.emplace_back([=] { std::memcpy(to, from, bytes); });
  ++s.added;
  return cudaSuccess;
}
}

namespace mkbench {
namespace {

constexpr size_t kGap = 16;  // between two tensors, and not to be written

struct Tensors {
  explicit Tensors(const std::vector<size_t>& sizes) {
    size_t all = 0;
    for (const size_t size : sizes) all += size + kGap;
    from.resize(all);
    to.assign(all, 0);
    for (size_t i = 0; i + 8 <= all; i += 8) {
      const uint64_t word = splitmix64(i) | 0x0101010101010101u;
      std::memcpy(&from[i], &word, 8);
    }
    wanted = to;
    size_t at = 0;
    for (const size_t size : sizes) {
      copies.push_back({&to[at], &from[at], size});
      std::copy_n(&from[at], size, &wanted[at]);
      at += size + kGap;
    }
  }
  std::vector<unsigned char> from, to, wanted;
  std::vector<HostCopy> copies;
};

const std::vector<size_t> kSizes = {1,
                                    7,
                                    size_t{8} << 20,
                                    (size_t{8} << 20) + 1,
                                    (size_t{50} << 20) + 12345,
                                    0,
                                    (size_t{200} << 20) + 3,
                                    4096};

struct Reset {
  Reset() { async_copies = 0, failing_copy = -1, no_page_locked = false; }
  ~Reset() { CHECK(pinned == 0); }
};

}  // namespace

TEST_CASE("large models are copied byte by byte, through page-locked memory where there is some") {
  const Reset reset;
  Tensors tensors(kSizes);
  copy_to_device(tensors.copies);
  CHECK(async_copies == 2 + 1 + 2 + 7 + 26 + 1);
  CHECK((tensors.to == tensors.wanted));

  no_page_locked = true;
  std::fill(tensors.to.begin(), tensors.to.end(), 0);
  copy_to_device(tensors.copies);
  CHECK(async_copies == 39);
  CHECK((tensors.to == tensors.wanted));
}

TEST_CASE("small models are copied without page-locked memory") {
  const Reset reset;
  Tensors tensors({1000, 24, 1 << 20});
  copy_to_device(tensors.copies);
  CHECK(async_copies == 0);
  CHECK((tensors.to == tensors.wanted));
}

TEST_CASE("the error of one thread ends all copies and is the caller's") {
  const Reset reset;
  failing_copy = 9;
  Tensors tensors(kSizes);
  CHECK_THROWS_AS(copy_to_device(tensors.copies), Error);
  CHECK(async_copies < 39);
}

}  // namespace mkbench
