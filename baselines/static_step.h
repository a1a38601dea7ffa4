// One decode step of Qwen3 with tensors of fixed shape and place, so that a CUDA graph can hold it:
// the id, the position and the answer stay on the device, and attention goes over a bucket of KV
// rows, of which those that are not there yet are masked. For .cpp files of this folder, which
// include ATen before it.
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
// guards. The KV rows are those of the model's caches, which must hold finite numbers in all rows.
class StaticStep {
 public:
  // `model` outlives the object. The step is issued op by op, or where `package` is not empty by
  // that package (compiled_package.h). On a card it is captured once for each bucket.
  StaticStep(const ModelTensors& model, int max_context, const std::filesystem::path& package = {});
  ~StaticStep();
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  // The next step reads `id` (int64, one element on the device) at `position`. Without a call of
  // set_id() it reads the answer of the step before.
  void set_position(int position);
  void set_id(const at::Tensor& id) { id_.copy_(id); }
  // Runs one step, which appends a KV row. The caller has checked that there is room.
  void run();

  // Answers by position: int64 [max_context], and the logits that they have, [max_context].
  const at::Tensor& ids() const { return ids_; }
  const at::Tensor& best() const { return best_; }
  // Logits of the last step, [vocab], and its hidden states after each layer, [1, hidden] each.
  const at::Tensor& logits() const { return last_->logits; }
  const std::vector<at::Tensor>& hidden() const { return last_->hidden; }

 private:
  // What the step of one bucket leaves; a graph writes to the same places each time it is replayed.
  struct Bucket {
    int rows;
    at::Tensor logits;
    std::vector<at::Tensor> hidden;
    std::unique_ptr<at::cuda::CUDAGraph> graph;  // null on a CPU
    std::vector<at::Tensor> inputs;              // of the package; empty without one
  };

  // What the attention of every layer of a step sees: KV rows, of which the mask [rows] hides those
  // that are not there, and the rotation of its position, [1, head_dim] each.
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
  std::vector<at::Tensor> head_norms_;  // of each layer [heads + kv_heads, head_dim]
  at::Tensor id_, position_;            // int64 [1]
  at::Tensor ids_, best_;               // [max_context]
  // Null where the step is issued op by op.
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> package_;
  std::vector<Bucket> buckets_;
  Bucket* last_ = nullptr;
  int next_position_ = 0;
};

}  // namespace mkbench
