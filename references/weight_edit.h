// A copy of some weights in which tensors are edited, for faults and tests of kernels.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "references/model/weights.h"

namespace mkbench {

// Owns the edited tensors and shares the others. The `sha256` field keeps the hash of the sound
// weights; hash_weights() gives the hash of the edited ones.
class WeightEdit {
 public:
  explicit WeightEdit(const ModelWeights& weights)
      : weights_(weights), storage_(std::make_shared<Storage>()) {
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<Storage>>;
    weights_.owner = std::make_shared<Both>(weights.owner, storage_);
    weights_.folder.clear();
  }

  // The functions below take matrices of this object.
  ModelWeights& weights() { return weights_; }
  const ModelShape& shape() const { return weights_.config.shape; }

  // Gives the tensor a copy of its values and returns the copy; from now on the tensor reads it.
  std::vector<Bf16>& own(Matrix& m) {
    storage_->emplace_back(m.data, m.data + m.size());
    m.data = storage_->back().data();
    return storage_->back();
  }

  void each_value(Matrix& m, const std::function<float(float)>& edit) {
    for (Bf16& x : own(m)) x = to_bf16(edit(to_float(x)));
  }

  // Row r becomes what row from(r) was.
  void move_rows(Matrix& m, const std::function<int(int)>& from) {
    const Matrix sound = m;
    std::vector<Bf16>& values = own(m);
    for (int r = 0; r < m.rows; ++r) {
      const auto row = sound.row(from(r));
      std::copy(row.begin(), row.end(), values.begin() + int64_t{r} * m.cols);
    }
  }

  // Column c becomes what column from(c) was.
  void move_columns(Matrix& m, const std::function<int(int)>& from) {
    const Matrix sound = m;
    std::vector<Bf16>& values = own(m);
    for (int r = 0; r < m.rows; ++r) {
      for (int c = 0; c < m.cols; ++c) {
        values[static_cast<size_t>(int64_t{r} * m.cols + c)] =
            sound.row(r)[static_cast<size_t>(from(c))];
      }
    }
  }

  // The model counts as untied, even where its head still holds the embedding's values.
  void untie() { weights_.config.tie_word_embeddings = false; }

 private:
  using Storage = std::vector<std::vector<Bf16>>;
  ModelWeights weights_;
  std::shared_ptr<Storage> storage_;
};

}  // namespace mkbench
