// The truth with known bugs: whole sequences in fp32 without a KV cache, for the search for the bug
// of a failing engine. For .cpp files of this folder only, as eager_model.h.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "baselines/eager_model.h"
#include "baselines/known_bugs.h"
#include "references/bug_fit.h"

namespace mkbench {

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards.
class DeviantModel {
 public:
  // `tensors`: of the truth, in fp32; must outlive the model.
  DeviantModel(const ModelTensors& tensors, const Rope& rope) : m_(tensors), rope_(rope) {}

  // Logits of the last found.size() rows of every run, one run behind the other, fp32
  // [steps, vocab]. `rounded`: every result of an operation is rounded to bf16, as eager does.
  at::Tensor logits(std::span<const ObservedRun> runs, std::span<const Deviation> bugs,
                    bool rounded = false) const;

  // Gives the logits of the run's last found.size() rows with each of the bugs alone, until `give`
  // returns false. Every bug is of a single layer, those of lower layers first: the layers before a
  // bug's run once for all, and those behind it once for several bugs of the layer.
  using GiveLogits = std::function<bool(size_t bug, const at::Tensor& logits)>;
  void each_alone(const ObservedRun& run, std::span<const Deviation> bugs,
                  const GiveLogits& give) const;

 private:
  class Pass;

  const ModelTensors& m_;
  const Rope rope_;
};

}  // namespace mkbench
