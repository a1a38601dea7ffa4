#include "baselines/compiled_step.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <string>

#include "baselines/compiled_package.h"
#include "baselines/eager.h"
#include "baselines/model_tensors.h"
#include "references/base/error.h"

namespace mkbench {

using at::Tensor;

std::filesystem::path package_for(const ModelConfig& config, const EagerOptions& options) {
  const TorchFacts facts = torch_facts();
  PackageKey key{.shape = config.shape,
                 .eps = config.rms_norm_eps,
                 .cuda = options.cuda,
                 .gpu = options.gpu,
                 .architecture = "",
                 .torch_version = facts.version,
                 .torch_cuda_version = facts.cuda_version};
  if (options.cuda) {
    const auto* card = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(options.gpu));
    key.architecture = "sm_" + std::to_string(card->major) + std::to_string(card->minor);
  } else {
    key.architecture = cpu_architecture();
  }
  return compiled_package(key);
}

struct CompiledStep::Impl {
  const ModelTensors& model;
  torch::inductor::AOTIModelPackageLoader loader;
};

// A run that is not single-threaded ends with an event, whose state the next run asks for: neither
// may happen while a CUDA graph is captured.
CompiledStep::CompiledStep(const std::filesystem::path& package, const ModelTensors& model)
    : impl_(new Impl{
          model,
          {package.string(), "model", /*run_single_threaded=*/true, /*num_runners=*/1,
           model.real.device().is_cuda() ? model.real.device().index() : c10::DeviceIndex{-1}}}) {}

CompiledStep::~CompiledStep() = default;

// The order is that of Step.forward() in scripts/compile_step.py.
std::vector<Tensor> CompiledStep::inputs(const StepTensors& step, int rows) const {
  const ModelTensors& m = impl_->model;
  std::vector<Tensor> all = {
      step.id,        step.position,  step.ids, step.best,    step.places.narrow(0, 0, rows),
      step.cos_table, step.sin_table, m.embed,  m.final_norm, m.lm_head};
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const LayerTensors& layer = m.layers[l];
    for (const Tensor& one :
         {layer.input_norm, layer.post_attention_norm, layer.gate_up_proj, layer.down_proj,
          layer.k_cache.select(0, 0), layer.v_cache.select(0, 0), layer.qkv_proj,
          step.head_norms[l], layer.o_proj})
      all.push_back(one);
  }
  return all;
}

std::vector<Tensor> CompiledStep::run(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> outputs = impl_->loader.run(inputs);
  const size_t wanted = impl_->model.layers.size() + 1;
  if (outputs.size() != wanted) {
    throw Error(ErrorKind::kRuntime, "compiled: outputs of the package: found " +
                                         std::to_string(outputs.size()) + ", wanted " +
                                         std::to_string(wanted));
  }
  return outputs;
}

}  // namespace mkbench
