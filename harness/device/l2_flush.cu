#include <cuda_runtime.h>

#include "harness/device/l2_flush.h"
#include "kernels/device_buffer.h"

namespace mkbench {
namespace {

constexpr int kThreads = 512, kBlocksPerSm = 4;
// Passes over a buffer of twice L2's size. L2's replacement policy is not documented, so one pass
// may leave old lines.
constexpr int kPasses = 2;

__global__ void __launch_bounds__(kThreads)
    read_all(const uint4* buffer, size_t count, unsigned* sink) {
  unsigned sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
         i += size_t{gridDim.x} * kThreads) {
      const uint4 v = __ldcg(buffer + i);
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  // The buffer is zero, so this never writes; the compiler cannot know that and keeps the loads.
  if (sum != 0) *sink = sum;
}

}  // namespace

struct L2Flush::State {
  int gpu;
  int blocks;
  DeviceBuffer<uint4> buffer;
  DeviceBuffer<unsigned> sink{1};
};

L2Flush::L2Flush(int gpu) {
  MKBENCH_CUDA(cudaSetDevice(gpu));
  int multiprocessors = 0, l2_bytes = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, gpu));
  MKBENCH_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, gpu));
  const size_t count = 2 * static_cast<size_t>(l2_bytes) / sizeof(uint4);
  state_.reset(new State{gpu, kBlocksPerSm * multiprocessors, DeviceBuffer<uint4>(count)});
  MKBENCH_CUDA(cudaMemset(state_->buffer.get(), 0, state_->buffer.bytes()));
}

L2Flush::~L2Flush() = default;

void L2Flush::run() {
  MKBENCH_CUDA(cudaSetDevice(state_->gpu));
  MKBENCH_CUDA(cudaCtxResetPersistingL2Cache());
  read_all<<<state_->blocks, kThreads>>>(state_->buffer.get(), state_->buffer.size(),
                                         state_->sink.get());
  MKBENCH_CUDA(cudaGetLastError());
  MKBENCH_CUDA(cudaDeviceSynchronize());
}

}  // namespace mkbench
