#include "baselines/static_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <string>

#include "references/base/error.h"

namespace mkbench {
namespace {

using at::Tensor;

// Switches off deterministic algorithms while it lives: they make index copies sort their indices
// first, and a copy of one row is deterministic without that.
class UnsortedCopies {
 public:
  UnsortedCopies() : was_(at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  }
  UnsortedCopies(const UnsortedCopies&) = delete;
  UnsortedCopies& operator=(const UnsortedCopies&) = delete;
  ~UnsortedCopies() { at::globalContext().setDeterministicAlgorithms(was_, /*warn_only=*/false); }

 private:
  const bool was_;
};

// [rows, in] -> [rows, out].
Tensor times(const Tensor& x, const Tensor& matrix) { return at::linear(x, matrix); }

// libtorch's fused RMS norm: fp32 up to and including the product with the weight, rounded once. It
// takes no weight of another dtype than x.
Tensor norm(const Tensor& x, const Tensor& weight, double eps) {
  return at::rms_norm(x.to(weight.scalar_type()), {x.size(-1)}, weight, eps).to(x.scalar_type());
}

// RoPE on x [heads, head_dim]. cos, signed_sin: [1, head_dim]; signed_sin has a negated first half.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& signed_sin) {
  return at::addcmul(x * cos, at::roll(x, x.size(-1) / 2, -1), signed_sin);
}

}  // namespace

// The package needs run_single_threaded: otherwise each run records an event, which the next run
// queries, and both are forbidden while a CUDA graph is captured.
StaticStep::StaticStep(const ModelTensors& model, int max_context,
                       const std::filesystem::path& package)
    : model_(model) {
  const at::Device device = model.real.device();
  if (!package.empty())
    package_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        package.string(), "model", /*run_single_threaded=*/true, /*num_runners=*/1,
        device.is_cuda() ? device.index() : c10::DeviceIndex{-1});
  const at::TensorOptions whole = model.real.dtype(at::kLong);
  make_tables(max_context);
  const ModelShape& s = model.shape;
  for (const LayerTensors& layer : model.layers) {
    if (!layer.q_norm.defined()) break;
    head_norms_.push_back(at::cat({layer.q_norm.expand({s.heads, s.head_dim}),
                                   layer.k_norm.expand({s.kv_heads, s.head_dim})})
                              .contiguous());
  }
  id_ = at::zeros({1}, whole);
  position_ = at::zeros({1}, whole);
  places_ = at::arange(max_context, whole);
  ids_ = at::full({max_context}, -1, whole);
  best_ = at::zeros({max_context}, model.real);
  for (const int rows : kv_buckets(max_context)) {
    buckets_.push_back({rows, {}, {}, nullptr, {}});
    if (package_) buckets_.back().inputs = package_inputs(rows);
    if (device.is_cuda()) capture(buckets_.back());
  }
}

StaticStep::~StaticStep() = default;

// The inputs of a step over the first `rows` KV rows, uncopied, in the order of Step.forward() in
// scripts/compile_step.py.
std::vector<Tensor> StaticStep::package_inputs(int rows) const {
  std::vector<Tensor> all = {id_,
                             position_,
                             ids_,
                             best_,
                             places_.narrow(0, 0, rows),
                             cos_table_,
                             sin_table_,
                             model_.embed,
                             model_.final_norm,
                             model_.lm_head};
  for (size_t l = 0; l < model_.layers.size(); ++l) {
    const LayerTensors& layer = model_.layers[l];
    for (const Tensor& one :
         {layer.input_norm, layer.post_attention_norm, layer.gate_up_proj, layer.down_proj,
          layer.k_cache.select(0, 0), layer.v_cache.select(0, 0), layer.qkv_proj, head_norms_[l],
          layer.o_proj})
      all.push_back(one);
  }
  return all;
}

// cos and sin for each position, computed like eager's.
void StaticStep::make_tables(int max_context) {
  const Tensor all = at::arange(max_context, model_.real.dtype(at::kFloat));
  const Tensor angles = all.view({max_context, 1}) * model_.inv_freq;
  const Tensor sines = angles.sin();
  cos_table_ = at::cat({angles, angles}, -1).cos().to(model_.real.dtype());
  sin_table_ = at::cat({-sines, sines}, -1).to(model_.real.dtype());
}

// A graph is captured on a stream of its own, after a run that lets cuBLAS take its workspace.
void StaticStep::capture(Bucket& bucket) {
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  at::cuda::getCurrentCUDAStream().synchronize();
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    position_.zero_();
    issue(bucket);
    position_.zero_();
    side.synchronize();
    bucket.graph = std::make_unique<at::cuda::CUDAGraph>();
    // All graphs share the memory of the first: only one runs at a time, and tensors that outlive a
    // step are allocated outside of graphs.
    const at::cuda::MempoolId_t pool =
        &bucket == &buckets_.front() ? at::cuda::MempoolId_t{0, 0} : buckets_.front().graph->pool();
    bucket.graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    issue(bucket);
    bucket.graph->capture_end();
  }
  side.synchronize();
}

// The package outputs the logits [vocab], then the hidden state after each layer, [1, hidden].
void StaticStep::issue_package(Bucket& bucket) {
  bucket.hidden = package_->run(bucket.inputs);
  if (bucket.hidden.size() != model_.layers.size() + 1) {
    throw Error(ErrorKind::kRuntime, "compiled: outputs of the package: found " +
                                         std::to_string(bucket.hidden.size()) + ", wanted " +
                                         std::to_string(model_.layers.size() + 1));
  }
  bucket.logits = bucket.hidden.front();
  bucket.hidden.erase(bucket.hidden.begin());
}

// Issues one step on the current stream, without a host synchronisation, so that a CUDA graph can
// hold it.
void StaticStep::issue(Bucket& bucket) {
  if (package_) return issue_package(bucket);
  const UnsortedCopies unsorted;
  const ModelShape& s = model_.shape;
  const Tensor there = places_.narrow(0, 0, bucket.rows) <= position_;
  const Tensor lowest = at::full({}, model_.masked_score(), model_.real);
  const View view{.rows = bucket.rows,
                  .cos = cos_table_.index_select(0, position_),
                  .sin = sin_table_.index_select(0, position_),
                  .mask = at::where(there, at::zeros({}, model_.real), lowest)};
  Tensor h = model_.scaled(at::embedding(model_.embed, id_));
  bucket.hidden.clear();
  for (size_t l = 0; l < model_.layers.size(); ++l) {
    const LayerTensors& layer = model_.layers[l];
    h = h + attention(layer, head_norms_.empty() ? Tensor() : head_norms_[l],
                      norm(h, layer.input_norm, model_.eps), view);
    const Tensor both = times(norm(h, layer.post_attention_norm, model_.eps), layer.gate_up_proj);
    const Tensor gated = model_.activate(both.narrow(1, 0, s.intermediate)) *
                         both.narrow(1, s.intermediate, s.intermediate);
    h = h + times(gated, layer.down_proj);
    bucket.hidden.push_back(h);
  }
  bucket.logits = times(norm(h, model_.final_norm, model_.eps), model_.lm_head).view({s.vocab});
  // max() over a dimension promises the first index among equals.
  const auto [value, index] = at::max(bucket.logits, 0, /*keepdim=*/true);
  ids_.index_copy_(0, position_, index);
  best_.index_copy_(0, position_, value);
  id_.copy_(index);
  position_.add_(1);
}

// x [1, hidden] after the input norm -> [1, hidden] for the residual add. Query heads that share a
// K and V head are rows of one product.
Tensor StaticStep::attention(const LayerTensors& layer, const Tensor& norms, const Tensor& x,
                             const View& view) const {
  const ModelShape& s = model_.shape;
  const int64_t heads = s.heads, kv_heads = s.kv_heads, dim = s.head_dim;
  const Tensor qkv =
      at::linear(x, layer.qkv_proj, layer.qkv_bias).view({heads + 2 * kv_heads, dim});
  Tensor qk = qkv.narrow(0, 0, heads + kv_heads);
  if (norms.defined()) {
    const Tensor scaled = at::rms_norm(qk.to(norms.scalar_type()), {dim}, {}, model_.eps);
    qk = (scaled * norms).to(qkv.scalar_type());
  }
  const Tensor rotated = rotate(qk, view.cos, view.sin);
  Tensor k_cache = layer.k_cache.select(0, 0), v_cache = layer.v_cache.select(0, 0);
  k_cache.index_copy_(1, position_, rotated.narrow(0, heads, kv_heads).unsqueeze(1));
  v_cache.index_copy_(1, position_, qkv.narrow(0, heads + kv_heads, kv_heads).unsqueeze(1));
  const Tensor query = rotated.narrow(0, 0, heads).view({kv_heads, heads / kv_heads, dim});
  const Tensor scores = at::bmm(query, k_cache.narrow(1, 0, view.rows).transpose(1, 2));
  const Tensor probabilities = at::softmax(at::add(view.mask, scores, model_.scaling), -1);
  const Tensor mixed = at::bmm(probabilities, v_cache.narrow(1, 0, view.rows));
  return times(mixed.view({1, heads * dim}), layer.o_proj);
}

void StaticStep::set_position(int position) {
  next_position_ = position;
  position_.fill_(position);
}

void StaticStep::run() {
  const int position = next_position_++;
  Bucket& bucket = *std::find_if(buckets_.begin(), buckets_.end(),
                                 [&](const Bucket& one) { return position < one.rows; });
  if (bucket.graph)
    bucket.graph->replay();
  else
    issue(bucket);
  last_ = &bucket;
}

}  // namespace mkbench
