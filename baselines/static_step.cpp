#include "baselines/static_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <utility>

#include "baselines/compiled_step.h"
#include "baselines/model_tensors.h"

namespace mkbench {
namespace {

using at::Tensor;

constexpr int kLeastBucket = 256;

// With deterministic algorithms libtorch sorts the indices of a copy first. A copy of one row has
// one index, and is deterministic without.
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

// libtorch's fused operator: in fp32 up to the product with the weight, then rounded once.
Tensor norm(const Tensor& x, const Tensor& weight, double eps) {
  return at::rms_norm(x, {x.size(-1)}, weight, eps);
}

// [heads, head_dim] times cos and sin [1, head_dim], whose first half has the sign of rotate_half.
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& signed_sin) {
  return at::addcmul(x * cos, at::roll(x, x.size(-1) / 2, -1), signed_sin);
}

}  // namespace

std::vector<int> kv_buckets(int max_context) {
  std::vector<int> buckets;
  for (int rows = kLeastBucket; rows < max_context; rows *= 2) buckets.push_back(rows);
  buckets.push_back(max_context);
  return buckets;
}

struct StaticStep::Impl {
  Impl(const ModelTensors& m, int max_context, const std::filesystem::path& package_file);

  // What the step of one bucket leaves; a graph writes to the same places each time it is replayed.
  struct Bucket {
    int rows;
    Tensor logits;
    std::vector<Tensor> hidden;
    std::unique_ptr<at::cuda::CUDAGraph> graph;  // null on a CPU
    std::vector<Tensor> inputs;                  // of the package; empty without one
  };

  // What the attention of every layer of a step sees: KV rows, of which the mask [rows] hides those
  // that are not there, and the rotation of its position, [1, head_dim] each.
  struct View {
    int rows;
    Tensor cos, sin, mask;
  };

  void make_tables(int max_context);
  void capture(Bucket& bucket);
  void issue(Bucket& bucket);
  void issue_operators(Bucket& bucket);
  Tensor attention(const LayerTensors& layer, const Tensor& norms, const Tensor& x,
                   const View& view) const;
  Bucket& bucket_of(int position);

  const ModelTensors& model;
  Tensor cos_table, sin_table;            // [max_context, head_dim]
  Tensor places;                          // int64 [max_context], 0 to max_context - 1
  std::vector<Tensor> head_norms;         // of each layer [heads + kv_heads, head_dim]
  Tensor id, position;                    // int64 [1]
  Tensor ids, best;                       // [max_context]
  std::unique_ptr<CompiledStep> package;  // null where the step is issued op by op
  std::vector<Bucket> buckets;
  Bucket* last = nullptr;
  int next_position = 0;
};

StaticStep::Impl::Impl(const ModelTensors& m, int max_context,
                       const std::filesystem::path& package_file)
    : model(m) {
  if (!package_file.empty()) package = std::make_unique<CompiledStep>(package_file, m);
  const at::TensorOptions whole = m.real.dtype(at::kLong);
  make_tables(max_context);
  for (const LayerTensors& layer : m.layers) {
    head_norms.push_back(at::cat({layer.q_norm.expand({m.shape.heads, m.shape.head_dim}),
                                  layer.k_norm.expand({m.shape.kv_heads, m.shape.head_dim})})
                             .contiguous());
  }
  id = at::zeros({1}, whole);
  position = at::zeros({1}, whole);
  places = at::arange(max_context, whole);
  ids = at::full({max_context}, -1, whole);
  best = at::zeros({max_context}, m.real);
  for (const int rows : kv_buckets(max_context)) {
    buckets.push_back({rows, {}, {}, nullptr, {}});
    if (package) {
      buckets.back().inputs = package->inputs(
          {id, position, ids, best, places, cos_table, sin_table, head_norms}, rows);
    }
    if (m.real.device().is_cuda()) capture(buckets.back());
  }
}

// cos and sin as eager computes them for each position.
void StaticStep::Impl::make_tables(int max_context) {
  const Tensor all = at::arange(max_context, model.real.dtype(at::kFloat));
  const Tensor angles = all.view({max_context, 1}) * model.inv_freq;
  const Tensor sines = angles.sin();
  cos_table = at::cat({angles, angles}, -1).cos().to(model.real.dtype());
  sin_table = at::cat({-sines, sines}, -1).to(model.real.dtype());
}

// A graph is captured on a stream of its own, after a run that lets cuBLAS take its workspace.
void StaticStep::Impl::capture(Bucket& bucket) {
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  at::cuda::getCurrentCUDAStream().synchronize();
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    position.zero_();
    issue(bucket);
    position.zero_();
    side.synchronize();
    bucket.graph = std::make_unique<at::cuda::CUDAGraph>();
    // All graphs share the memory of the first: only one runs at a time, and what has to outlive a
    // step lies outside.
    const at::cuda::MempoolId_t pool =
        &bucket == &buckets.front() ? at::cuda::MempoolId_t{0, 0} : buckets.front().graph->pool();
    bucket.graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    issue(bucket);
    bucket.graph->capture_end();
  }
  side.synchronize();
}

// Issues one step.
void StaticStep::Impl::issue(Bucket& bucket) {
  if (!package) return issue_operators(bucket);
  bucket.hidden = package->run(bucket.inputs);
  bucket.logits = bucket.hidden.front();
  bucket.hidden.erase(bucket.hidden.begin());
}

void StaticStep::Impl::issue_operators(Bucket& bucket) {
  const UnsortedCopies unsorted;
  const ModelShape& s = model.shape;
  const Tensor there = places.narrow(0, 0, bucket.rows) <= position;
  const Tensor lowest = at::full({}, model.masked_score(), model.real);
  const View view{.rows = bucket.rows,
                  .cos = cos_table.index_select(0, position),
                  .sin = sin_table.index_select(0, position),
                  .mask = at::where(there, at::zeros({}, model.real), lowest)};
  Tensor h = at::embedding(model.embed, id);
  bucket.hidden.clear();
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const LayerTensors& layer = model.layers[l];
    h = h + attention(layer, head_norms[l], norm(h, layer.input_norm, model.eps), view);
    const Tensor both = times(norm(h, layer.post_attention_norm, model.eps), layer.gate_up_proj);
    const Tensor gated = at::silu(both.narrow(1, 0, s.intermediate)) *
                         both.narrow(1, s.intermediate, s.intermediate);
    h = h + times(gated, layer.down_proj);
    bucket.hidden.push_back(h);
  }
  bucket.logits = times(norm(h, model.final_norm, model.eps), model.lm_head).view({s.vocab});
  // max() over a dimension promises the first index among equals.
  const auto [value, index] = at::max(bucket.logits, 0, /*keepdim=*/true);
  ids.index_copy_(0, position, index);
  best.index_copy_(0, position, value);
  id.copy_(index);
  position.add_(1);
}

// x [1, hidden] after the input norm -> [1, hidden] for the residual add. Query heads that share a
// K and V head are rows of one product.
Tensor StaticStep::Impl::attention(const LayerTensors& layer, const Tensor& norms, const Tensor& x,
                                   const View& view) const {
  const ModelShape& s = model.shape;
  const int64_t heads = s.heads, kv_heads = s.kv_heads, dim = s.head_dim;
  const Tensor qkv = times(x, layer.qkv_proj).view({heads + 2 * kv_heads, dim});
  const Tensor qk = at::rms_norm(qkv.narrow(0, 0, heads + kv_heads), {dim}, {}, model.eps) * norms;
  const Tensor rotated = rotate(qk, view.cos, view.sin);
  Tensor k_cache = layer.k_cache.select(0, 0), v_cache = layer.v_cache.select(0, 0);
  k_cache.index_copy_(1, position, rotated.narrow(0, heads, kv_heads).unsqueeze(1));
  v_cache.index_copy_(1, position, qkv.narrow(0, heads + kv_heads, kv_heads).unsqueeze(1));
  const Tensor query = rotated.narrow(0, 0, heads).view({kv_heads, heads / kv_heads, dim});
  const Tensor scores = at::bmm(query, k_cache.narrow(1, 0, view.rows).transpose(1, 2));
  const Tensor probabilities = at::softmax(at::add(view.mask, scores, model.scaling), -1);
  const Tensor mixed = at::bmm(probabilities, v_cache.narrow(1, 0, view.rows));
  return times(mixed.view({1, heads * dim}), layer.o_proj);
}

StaticStep::Impl::Bucket& StaticStep::Impl::bucket_of(int at) {
  return *std::find_if(buckets.begin(), buckets.end(),
                       [&](const Bucket& bucket) { return at < bucket.rows; });
}

StaticStep::StaticStep(const ModelTensors& model, int max_context,
                       const std::filesystem::path& package)
    : impl_(std::make_unique<Impl>(model, max_context, package)) {}

StaticStep::~StaticStep() = default;

void StaticStep::set_position(int position) {
  impl_->next_position = position;
  impl_->position.fill_(position);
}

void StaticStep::set_id(const Tensor& id) { impl_->id.copy_(id); }

void StaticStep::run() {
  Impl::Bucket& bucket = impl_->bucket_of(impl_->next_position++);
  if (bucket.graph)
    bucket.graph->replay();
  else
    impl_->issue(bucket);
  impl_->last = &bucket;
}

const Tensor& StaticStep::ids() const { return impl_->ids; }
const Tensor& StaticStep::best() const { return impl_->best; }
const Tensor& StaticStep::logits() const { return impl_->last->logits; }
const std::vector<Tensor>& StaticStep::hidden() const { return impl_->last->hidden; }

}  // namespace mkbench
