#include "kernels/cuda_check.h"
#include "kernels/prefill/launches.h"
#include "kernels/prefill/rows.cuh"

namespace mkbench::prefill {
namespace {

unsigned ceil_div(int a, int b) { return static_cast<unsigned>((a + b - 1) / b); }

template <class Kv>
void launch_heads(const HeadsInput& in, const Kv& kv) {
  const int items = in.rows * (in.heads + 2 * in.kv_heads);
  heads_kernel<<<ceil_div(items, kRowWarps), 32 * kRowWarps>>>(in, kv);
  MKBENCH_CUDA(cudaGetLastError());
}

template <typename Kernel>
void load(Kernel kernel) {
  cudaFuncAttributes attributes{};
  MKBENCH_CUDA(cudaFuncGetAttributes(&attributes, kernel));
}

}  // namespace

void load_rows() {
  load(embed_kernel);
  load(normalize_kernel);
  load(heads_kernel<PlainRows<64>>);
  load(heads_kernel<PlainRows<128>>);
  load(heads_kernel<RingKv>);
}

void embed_rows(const unsigned short* embed, const int* ids, int rows, int hidden,
                float* residual) {
  embed_kernel<<<static_cast<unsigned>(rows), 128>>>(embed, ids, hidden, residual);
  MKBENCH_CUDA(cudaGetLastError());
}

void normalize_rows(const float* residual, const unsigned short* weight, float eps, int rows,
                    int hidden, SplitRows out) {
  normalize_kernel<<<ceil_div(rows, kNormWarps), 32 * kNormWarps>>>(residual, weight, eps, rows,
                                                                    hidden, out);
  MKBENCH_CUDA(cudaGetLastError());
}

void finish_heads(const HeadsInput& in, const PlainKv& kv) {
  if (in.head_dim == 64) return launch_heads(in, PlainRows<64>{kv});
  launch_heads(in, PlainRows<128>{kv});
}
void finish_heads(const HeadsInput& in, const RingKv& kv) { launch_heads(in, kv); }

}  // namespace mkbench::prefill
