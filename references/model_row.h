// The table of models that have a name in mkbench: one row each, constants only. Command line,
// plan, list, gate and loader read it. Snapshot folders and hub ids without a row are the user's
// own models.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "references/qwen3.h"

namespace mkbench {

enum class ModelSource {
  kCommitted,  // references/data/NAME holds weights and references
  kAnalytic,   // made in memory; a closed form says what follows a prompt (synthetic.h)
  kUsers,      // the user brings the weights; folder name and shape identify it
};

struct ModelRow {
  std::string_view name;  // as in --model; for a user's model the last part of its path
  std::string_view help;  // one line; empty: `list` leaves the model out
  ModelShape shape;
  bool tied;  // the LM head is the embedding
  ModelSource source;
  std::string_view lagset;          // analytic models only; empty: chosen by depth
  std::string_view parity_set;      // names the references that judge the model (find_references())
  std::string_view weights_sha256;  // over all tensors; empty: unknown, or any weights are accepted
  bool byte_level;                  // the vocabulary is 256 bytes, then bos, eos, pad
};

std::span<const ModelRow> model_rows();

// The row with the name `model`; null for folders, hub ids and unknown names.
const ModelRow* find_model(std::string_view model);

// The row of a model whose weights have `shape`, found by its name or by the last part of a path or
// hub id.
const ModelRow* find_model(std::string_view model, const ModelShape& shape);

// True where mkbench ships weights and references, and thus a truth: nothing is judged live.
inline bool has_committed_truth(const ModelRow* row) {
  return row != nullptr && row->source != ModelSource::kUsers;
}
inline bool is_analytic(const ModelRow* row) {
  return row != nullptr && row->source == ModelSource::kAnalytic;
}

// The last part of a path or hub id: the name under which references of a user's model are filed.
std::string model_folder_name(std::string_view model);

// True where token ids of this vocabulary are bytes.
bool is_byte_level(const ModelShape& shape);

}  // namespace mkbench
