// Device memory through which the phases of a launch hand results to each other.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/partition.h"
#include "references/qwen3.h"

namespace mkbench::plain {

// What the phases hand to each other, in one place because poison() fills all of it; shapes in
// LaunchParams.
struct Scratch {
  Scratch(const ModelShape& s, int blocks)
      : residual(size(s.hidden)),
        qkv(size(s.qkv_width())),
        attention_max(size(s.heads) * kMaxSplits),
        attention_sum(size(s.heads) * kMaxSplits),
        attention_acc(size(s.q_width()) * kMaxSplits),
        swiglu(size(s.intermediate)),
        hidden(size(s.layers) * size(s.hidden)),
        best(size(blocks)) {}
  static size_t size(int n) { return static_cast<size_t>(n); }
  static int64_t bytes(const ModelShape& s) {
    return 4 * (int64_t{s.hidden} * (1 + s.layers) + s.qkv_width() + s.intermediate +
                int64_t{kMaxSplits} * (2 * s.heads + s.q_width()));
  }
  // All bits set: NaN as fp32, "a logit was NaN" as a best key.
  void poison() {
    for (DeviceBuffer<float>* b :
         {&residual, &qkv, &attention_max, &attention_sum, &attention_acc, &swiglu, &hidden}) {
      MKBENCH_CUDA(cudaMemset(b->get(), 0xff, b->bytes()));
    }
    MKBENCH_CUDA(cudaMemset(best.get(), 0xff, best.bytes()));
  }

  DeviceBuffer<float> residual, qkv, attention_max, attention_sum, attention_acc, swiglu, hidden;
  DeviceBuffer<unsigned long long> best;
};

}  // namespace mkbench::plain
