// One decode step of Qwen3 with tensors of fixed shape and place, so that a CUDA graph can hold it:
// the id, the position and the answer stay on the device, and attention goes over a bucket of KV
// rows, of which those that are not there yet are masked.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

namespace at {
class Tensor;
}

namespace mkbench {

struct ModelTensors;

// Every method may throw libtorch's exceptions; the caller holds the InferenceMode and device
// guards. The KV rows are those of the model's caches, which must hold finite numbers in all rows.
class StaticStep {
 public:
  // `model` outlives the object. The step is issued op by op, or where `package` is not empty by
  // that package (compiled_step.h). On a card it is captured once for each bucket.
  StaticStep(const ModelTensors& model, int max_context, const std::filesystem::path& package = {});
  ~StaticStep();
  StaticStep(const StaticStep&) = delete;
  StaticStep& operator=(const StaticStep&) = delete;

  // The next step reads `id` (int64, one element on the device) at `position`. Without a call of
  // set_id() it reads the answer of the step before.
  void set_position(int position);
  void set_id(const at::Tensor& id);
  // Runs one step, which appends a KV row. The caller has checked that there is room.
  void run();

  // Answers by position: int64 [max_context], and the logits that they have, [max_context].
  const at::Tensor& ids() const;
  const at::Tensor& best() const;
  // Logits of the last step, [vocab], and its hidden states after each layer, [1, hidden] each.
  const at::Tensor& logits() const;
  const std::vector<at::Tensor>& hidden() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The buckets of a context, ascending: powers of two from 256 on, and the context itself.
std::vector<int> kv_buckets(int max_context);

}  // namespace mkbench
