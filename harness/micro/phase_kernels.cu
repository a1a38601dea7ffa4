// The device translation unit of the phase microbenchmarks: each phase function of the plain
// megakernel in a kernel of its own.
#include "harness/micro/phase_kernels.h"
#include "kernels/cuda_check.h"
#include "kernels/plain/kernel.cuh"

namespace mkbench::micro {
namespace {

struct FullShape {
  static constexpr ModelShape kShape = kQwen3_0_6B;
};

template <Phase kPhase>
__global__ void __launch_bounds__(plain::kThreads<FullShape>, 1)
    repeat_phase(const __grid_constant__ plain::LaunchParams p) {
  __shared__ plain::Shared<FullShape> s;
  const plain::GridExchange x{p};
  if (threadIdx.x == 0) s.expected = 0;
  constexpr int kStep = 0;  // passed in every step, so that position and input stay the same
  const int layers = kPhases[static_cast<int>(kPhase)].per_layer ? p.layer_count : 1;
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
#pragma unroll 1
    for (int layer = 0; layer < layers; ++layer) {
      if (!plain::run_phase<FullShape>(kPhase, p, s, x, kStep, layer)) return;
    }
  }
}

__device__ __forceinline__ float value_at(size_t i, float scale) {
  unsigned x = static_cast<unsigned>(i) * 2654435761u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return scale * (static_cast<float>(x) * 0x1p-31f - 1.0f);
}

__global__ void fill_bf16_kernel(unsigned short* to, size_t count, float scale) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    to[i] = static_cast<unsigned short>(plain::narrow(value_at(i, scale)));
  }
}

__global__ void fill_fp32_kernel(float* to, size_t count, float scale) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    to[i] = value_at(i, scale);
  }
}

constexpr int kFillBlocks = 1024, kFillThreads = 256;

}  // namespace

const void* phase_kernel(Phase phase) {
  switch (phase) {
    case Phase::kQkv:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kQkv>);
    case Phase::kAttention:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kAttention>);
    case Phase::kOProj:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kOProj>);
    case Phase::kGateUp:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kGateUp>);
    case Phase::kDown:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kDown>);
    case Phase::kLmHead:
      return reinterpret_cast<const void*>(&repeat_phase<Phase::kLmHead>);
    case Phase::kEmbed:
    case Phase::kCount:
      break;
  }
  return nullptr;
}

void fill_bf16(unsigned short* to, size_t count, float scale) {
  fill_bf16_kernel<<<kFillBlocks, kFillThreads>>>(to, count, scale);
  MKBENCH_CUDA(cudaGetLastError());
}

void fill_fp32(float* to, size_t count, float scale) {
  fill_fp32_kernel<<<kFillBlocks, kFillThreads>>>(to, count, scale);
  MKBENCH_CUDA(cudaGetLastError());
}

}  // namespace mkbench::micro
