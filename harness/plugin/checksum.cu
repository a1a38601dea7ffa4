#include "harness/plugin/checksum.h"
#include "kernels/cuda_check.h"
#include "kernels/device_buffer.h"
#include "kernels/mix.cuh"

namespace mkbench {
namespace {

__global__ void sum_words(const unsigned long long* words, size_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    mine += mix_at(words[i], i);
  }
  if (mine != 0) atomicAdd(sum, mine);
}

}  // namespace

uint64_t device_checksum(const void* data, size_t words) {
  DeviceBuffer<unsigned long long> sum(1);
  MKBENCH_CUDA(cudaMemset(sum.get(), 0, sum.bytes()));
  sum_words<<<1024, 256>>>(static_cast<const unsigned long long*>(data), words, sum.get());
  MKBENCH_CUDA(cudaGetLastError());
  unsigned long long result = 0;
  MKBENCH_CUDA(cudaMemcpy(&result, sum.get(), sizeof(result), cudaMemcpyDeviceToHost));
  return result;
}

}  // namespace mkbench
