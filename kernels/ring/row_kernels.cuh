// The kernels of one layer shape, a row of kLayerShapes. Each shape has a translation unit of its own
// in rows/, which instantiates RowKernels for it.
#pragma once

#include "kernels/ring/kernel.cuh"

#ifdef __CUDACC_RTC__
namespace mkbench::ring {

// The names in kAll make NVRTC compile these kernels.
template <int kRow>
struct RowKernels {
  static constexpr void (*kAll[])(const LaunchParams) = {
      ring_decode<Layout<kRow>, RingAblation::kNone>,
      ring_decode<Layout<kRow>, RingAblation::kNoWaits>,
      ring_decode<Layout<kRow>, RingAblation::kNoLoads>};
};

}  // namespace mkbench::ring
#else
#include "kernels/ring/row_kernels.h"

namespace mkbench::ring {

template <int kRow>
const void* RowKernels<kRow>::kernel_for(RingAblation ablation) {
  using L = Layout<kRow>;
  switch (ablation) {
    case RingAblation::kNone:
      return reinterpret_cast<const void*>(&ring_decode<L, RingAblation::kNone>);
    case RingAblation::kNoWaits:
      return reinterpret_cast<const void*>(&ring_decode<L, RingAblation::kNoWaits>);
    case RingAblation::kNoLoads:
      return reinterpret_cast<const void*>(&ring_decode<L, RingAblation::kNoLoads>);
    case RingAblation::kDelayed:   // not shipped: instances/delayed.cu
    case RingAblation::kRecorded:  // instances/recorded.cu
      break;
  }
  return nullptr;
}

template <int kRow>
int RowKernels<kRow>::threads_per_block() {
  return kThreads;
}

template <int kRow>
int RowKernels<kRow>::shared_bytes(int compute_major) {
  return ring::shared_bytes<Layout<kRow>>(compute_major);
}

}  // namespace mkbench::ring
#endif
