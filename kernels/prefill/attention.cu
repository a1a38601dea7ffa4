#include "kernels/cuda_check.h"
#include "kernels/prefill/attention.cuh"
#include "kernels/prefill/launches.h"

namespace mkbench::prefill {
namespace {

template <class Kv>
constexpr int kShared = kAttentionShared<Kv::kHeadDim>;

template <class Kv>
void allow_shared_memory() {
  MKBENCH_CUDA(cudaFuncSetAttribute(attention_kernel<Kv>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kShared<Kv>));
}

template <class Kv>
void launch(const AttentionInput& in, const Kv& kv) {
  const dim3 grid(static_cast<unsigned>((in.rows + kQueryRows - 1) / kQueryRows),
                  static_cast<unsigned>(in.heads));
  attention_kernel<<<grid, kTileThreads, (kShared<Kv>)>>>(in, kv);
  MKBENCH_CUDA(cudaGetLastError());
}

}  // namespace

void load_attention() {
  allow_shared_memory<PlainRows<64>>();
  allow_shared_memory<PlainRows<128>>();
  allow_shared_memory<RingKv>();
}

void attend_rows(const AttentionInput& in, const PlainKv& kv) {
  if (in.head_dim == 64) return launch(in, PlainRows<64>{kv});
  launch(in, PlainRows<128>{kv});
}
void attend_rows(const AttentionInput& in, const RingKv& kv) { launch(in, kv); }

}  // namespace mkbench::prefill
