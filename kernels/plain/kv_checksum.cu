#include "kernels/cuda_check.h"
#include "kernels/device_buffer.h"
#include "kernels/mix.cuh"
#include "kernels/plain/kv_checksum.h"

namespace mkbench::plain {
namespace {

__global__ void sum_rows(const unsigned long long* words, size_t slab_words, size_t used_words,
                         int slabs, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int slab = static_cast<int>(blockIdx.y); slab < slabs; slab += static_cast<int>(gridDim.y)) {
    const unsigned long long* from = words + slab * slab_words;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < used_words;
         i += static_cast<size_t>(gridDim.x) * blockDim.x) {
      mine += mix_at(from[i], slab * slab_words + i);
    }
  }
  if (mine != 0) atomicAdd(sum, mine);
}

}  // namespace

uint64_t kv_checksum(const void* cache, int slabs, int slab_rows, int positions, int row_words) {
  if (positions == 0) return 0;
  DeviceBuffer<unsigned long long> sum(1);
  MKBENCH_CUDA(cudaMemset(sum.get(), 0, sum.bytes()));
  const size_t slab_words = static_cast<size_t>(slab_rows) * static_cast<size_t>(row_words);
  const size_t used_words = static_cast<size_t>(positions) * static_cast<size_t>(row_words);
  sum_rows<<<dim3(8, 128), 256>>>(static_cast<const unsigned long long*>(cache), slab_words,
                                  used_words, slabs, sum.get());
  MKBENCH_CUDA(cudaGetLastError());
  unsigned long long result = 0;
  MKBENCH_CUDA(cudaMemcpy(&result, sum.get(), sizeof(result), cudaMemcpyDeviceToHost));
  return result;
}

}  // namespace mkbench::plain
