// One decode step with tensors of fixed shape and place, so that a CUDA graph can hold it:
// the id, the position and the results stay on the device, and attention reads a bucket of KV rows,
// with a mask over the rows that are not written yet. For .cpp files of this folder, which include
// ATen before this header.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "baselines/eager_model.h"

namespace at::cuda {
struct CUDAGraph;
}
namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace mkbench {

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards. Steps use the model's KV caches, which must hold finite numbers in all rows.
class StaticStep {
 public:
  // `model` outlives the object. The step is issued op by op or, if `package` is not empty, by that
  // package (compiled_package.h). On a card the step is captured once for each bucket.
  StaticStep(const ModelTensors& model, int max_context, const std::filesystem::path& package = {});
  ~StaticStep();
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  // The next step reads `id` (int64, one element on the device) at `position`. Without a call of
  // set_id() the step reads the id that the previous step chose.
  void set_position(int position);
  void set_id(const at::Tensor& id) { id_.copy_(id); }
  // Runs one step, which appends a KV row. The caller has checked that there is room.
  void run();

  // The chosen ids by position, int64 [max_context], and their logits, [max_context].
  const at::Tensor& ids() const { return ids_; }
  const at::Tensor& best() const { return best_; }
  // Logits of the last step, [vocab], and its hidden states after each layer, [1, hidden] each.
  const at::Tensor& logits() const { return last_->logits; }
  const std::vector<at::Tensor>& hidden() const { return last_->hidden; }

 private:
  // A step over `rows` KV rows and its outputs. Each replay of the graph writes the same tensors.
  struct Bucket {
    int rows;
    at::Tensor logits;
    std::vector<at::Tensor> hidden;
    std::unique_ptr<at::cuda::CUDAGraph> graph;  // null on a CPU
    std::vector<at::Tensor> inputs;              // the package's; empty without a package
  };

  // What attention takes in every layer of a step: the number of KV rows, the position's cos and
  // sin, [1, head_dim] each, and the mask [rows] of unwritten rows.
  struct View {
    int rows;
    at::Tensor cos, sin, mask;
  };

  void make_tables(int max_context);
  std::vector<at::Tensor> package_inputs(int rows) const;
  void capture(Bucket& bucket);
  void issue(Bucket& bucket);
  void issue_package(Bucket& bucket);
  at::Tensor attention(const LayerTensors& layer, const at::Tensor& norms, const at::Tensor& x,
                       const View& view) const;

  const ModelTensors& model_;
  at::Tensor cos_table_, sin_table_;    // [max_context, head_dim]
  at::Tensor places_;                   // int64 [max_context], 0 to max_context - 1
  std::vector<at::Tensor> head_norms_;  // per layer [heads + kv_heads, head_dim]: q's, then k's
  at::Tensor id_, position_;            // int64 [1]
  at::Tensor ids_, best_;               // [max_context]
  // Null if the step is issued op by op.
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> package_;
  std::vector<Bucket> buckets_;
  Bucket* last_ = nullptr;
  int next_position_ = 0;
};

}  // namespace mkbench
