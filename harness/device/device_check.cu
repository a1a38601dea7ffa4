#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "harness/device/device_check.h"
#include "kernels/device_buffer.h"

namespace mkbench {
namespace {

constexpr int kThreads = 256;
constexpr int kTermsPerThread = 64;

// Small integers of mean 1: exact in bf16, and sums of 10 million products stay exact in fp32.
__host__ __device__ constexpr int left_term(int i) { return i % 7 - 2; }
__host__ __device__ constexpr int right_term(int i) { return i % 5 - 1; }

__device__ float sum_over_block(float x) {
  __shared__ float lanes[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
  if (threadIdx.x % 32 == 0) lanes[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += lanes[w];
  __syncthreads();
  return sum;
}

// Writes partial [blocks] and result [1]. Phase 1: every block sums its products. Phase 2, after a
// grid-wide barrier: block 0 adds the partial sums of all blocks.
__global__ void __launch_bounds__(kThreads) dot_product(float* partial, float* result) {
  const int first = (blockIdx.x * kThreads + threadIdx.x) * kTermsPerThread;
  float sum = 0;
  for (int i = first; i < first + kTermsPerThread; ++i) {
    const __nv_bfloat16 a = __int2bfloat16_rn(left_term(i)), b = __int2bfloat16_rn(right_term(i));
    sum = fmaf(__bfloat162float(a), __bfloat162float(b), sum);
  }
  sum = sum_over_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
  cooperative_groups::this_grid().sync();
  if (blockIdx.x != 0) return;
  float total = 0;
  for (int b = threadIdx.x; b < static_cast<int>(gridDim.x); b += kThreads) total += partial[b];
  total = sum_over_block(total);
  if (threadIdx.x == 0) *result = total;
}

double expected_sum(int blocks) {
  long long sum = 0;
  for (int i = 0; i < blocks * kThreads * kTermsPerThread; ++i) sum += left_term(i) * right_term(i);
  return static_cast<double>(sum);
}

#ifndef __CUDACC_RTC__  // NVRTC, in dev/check_cuda128.py, has no exceptions
void run_check(int gpu, DeviceCheck& check) {
  MKBENCH_CUDA(cudaSetDevice(gpu));
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, gpu));
  if (properties.cooperativeLaunch == 0) {
    throw Error(ErrorKind::kUnsupportedDevice, "the device has no cooperative launch");
  }
  check.blocks = properties.multiProcessorCount;
  check.wanted = expected_sum(check.blocks);

  const DeviceBuffer<float> memory(static_cast<size_t>(check.blocks) + 1);  // partial sums, result
  // Fills it with NaN, so that a kernel that does not run gives a wrong sum.
  MKBENCH_CUDA(cudaMemset(memory.get(), 0xff, memory.bytes()));
  float* partial = memory.get();
  float* result = partial + check.blocks;
  void* arguments[] = {&partial, &result};
  MKBENCH_CUDA(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(dot_product),
                                           dim3(check.blocks), dim3(kThreads), arguments, 0,
                                           nullptr));
  float got = 0;
  MKBENCH_CUDA(cudaMemcpy(&got, result, sizeof(got), cudaMemcpyDeviceToHost));
  check.got = got;
  check.ok = check.got == check.wanted;
  if (!check.ok) {
    check.error =
        "the sum is " + std::to_string(check.got) + ", wanted " + std::to_string(check.wanted);
  }
}
#endif

}  // namespace

#ifndef __CUDACC_RTC__
DeviceCheck check_device(int gpu) {
  DeviceCheck check;
  try {
    run_check(gpu, check);
  } catch (const Error& e) {
    check.ok = false;
    check.error = e.what();
  }
  return check;
}
#endif

}  // namespace mkbench
