// One decode step as the package of `compiled` has it: static_step.h's step in code of AOTInductor.
// at::Tensor is only declared here, so that libtorch's headers stay in the .cpp files.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

namespace at {
class Tensor;
}

namespace mkbench {

struct EagerOptions;
struct ModelConfig;
struct ModelTensors;

// The package for a model and the device of `options` (compiled_package.h), which is made where the
// cache has none. Throws Error(kNotBuilt).
std::filesystem::path package_for(const ModelConfig& config, const EagerOptions& options);

// What a step reads and writes besides the model, by the names of static_step.cpp.
struct StepTensors {
  const at::Tensor& id;
  const at::Tensor& position;
  const at::Tensor& ids;
  const at::Tensor& best;
  const at::Tensor& places;
  const at::Tensor& cos_table;
  const at::Tensor& sin_table;
  const std::vector<at::Tensor>& head_norms;
};

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards.
class CompiledStep {
 public:
  // Loads the package onto the device of the model's tensors.
  CompiledStep(const std::filesystem::path& package, const ModelTensors& model);
  ~CompiledStep();
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;

  // The inputs of a step over the first `rows` KV rows. They hold the tensors, not copies.
  std::vector<at::Tensor> inputs(const StepTensors& step, int rows) const;
  // Issues the step on the current stream, without a host synchronisation, so that a CUDA graph can
  // hold it. Returns the logits [vocab], then the hidden states after each layer, [1, hidden] each.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mkbench
