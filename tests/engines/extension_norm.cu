// RMSNorm on the card, for extension_step.cpp: one block a row, fp32 inside, rounded where HF transformers
// rounds.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <torch/extension.h>

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    rms_norm(const __nv_bfloat16* x, const __nv_bfloat16* weight, __nv_bfloat16* out, int width,
             float eps) {
  __shared__ float sums[kThreads / 32];
  x += int64_t{blockIdx.x} * width;
  out += int64_t{blockIdx.x} * width;
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const float value = __bfloat162float(x[i]);
    sum += value * value;
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0;
  for (const float part : sums) all += part;
  const float scale = rsqrtf(all / static_cast<float>(width) + eps);
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const __nv_bfloat16 scaled = __float2bfloat16(__bfloat162float(x[i]) * scale);
    out[i] = __float2bfloat16(__bfloat162float(weight[i]) * __bfloat162float(scaled));
  }
}

const __nv_bfloat16* data(const torch::Tensor& t) {
  return reinterpret_cast<const __nv_bfloat16*>(t.const_data_ptr());
}

}  // namespace

torch::Tensor rms_norm_on_card(const torch::Tensor& x, const torch::Tensor& weight, double eps) {
  const torch::Tensor rows = x.contiguous();
  torch::Tensor out = torch::empty_like(rows);
  const auto count = static_cast<unsigned>(rows.numel() / rows.size(-1));
  rms_norm<<<count, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      data(rows), data(weight), reinterpret_cast<__nv_bfloat16*>(out.mutable_data_ptr()),
      static_cast<int>(rows.size(-1)), static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
