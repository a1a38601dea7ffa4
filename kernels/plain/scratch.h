// Device memory through which the phases of a launch hand results to each other.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/partition.h"
#include "references/qwen3.h"

namespace mkbench::plain {

// Elements of each array; shapes in LaunchParams.
struct ScratchSizes {
  ScratchSizes(const ModelShape& s, int blocks)
      : residual(size(s.hidden)),
        qkv(size(s.qkv_width())),
        attention_max(size(s.heads) * kMaxSplits),
        attention_sum(attention_max),
        attention_acc(size(s.q_width()) * kMaxSplits),
        swiglu(size(s.intermediate)),
        best(size(blocks)) {}
  static size_t size(int n) { return static_cast<size_t>(n); }
  int64_t bytes() const {
    const size_t floats = residual + qkv + attention_max + attention_sum + attention_acc + swiglu;
    return static_cast<int64_t>(4 * floats + 8 * best);
  }

  size_t residual, qkv, attention_max, attention_sum, attention_acc, swiglu, best;
};

// One buffer an array, so that compute-sanitizer sees an index that leaves its array.
struct Scratch {
  explicit Scratch(const ScratchSizes& n)
      : residual(n.residual),
        qkv(n.qkv),
        attention_max(n.attention_max),
        attention_sum(n.attention_sum),
        attention_acc(n.attention_acc),
        swiglu(n.swiglu),
        best(n.best) {}
  // All bits set: NaN as fp32, "a logit was NaN" as a best key.
  void poison() {
    for (DeviceBuffer<float>* b :
         {&residual, &qkv, &attention_max, &attention_sum, &attention_acc, &swiglu}) {
      MKBENCH_CUDA(cudaMemset(b->get(), 0xff, b->bytes()));
    }
    MKBENCH_CUDA(cudaMemset(best.get(), 0xff, best.bytes()));
  }

  DeviceBuffer<float> residual, qkv, attention_max, attention_sum, attention_acc, swiglu;
  DeviceBuffer<unsigned long long> best;
};

}  // namespace mkbench::plain
