// Device memory for what one phase of a launch writes and a later one reads.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/partition.h"
#include "references/model/shape.h"

namespace mkbench::plain {

// Number of elements of each array; LaunchParams gives the shapes.
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

// Each array has a buffer of its own, so that compute-sanitizer reports an index that leaves its
// array.
struct Scratch {
  explicit Scratch(const ScratchSizes& n)
      : residual(n.residual),
        qkv(n.qkv),
        attention_max(n.attention_max),
        attention_sum(n.attention_sum),
        attention_acc(n.attention_acc),
        swiglu(n.swiglu),
        best(n.best) {}
  // Sets all bits: NaN in an fp32 array, "a logit was NaN" (kNanKey) in `best`.
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
