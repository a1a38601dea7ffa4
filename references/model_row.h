// The models that mkbench knows by name: one row each, constants only. Command line, plan, list, gate
// and loader read it. Snapshot folders and hub ids without a row are models too: the user's own.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "references/qwen3.h"

namespace mkbench {

enum class ModelSource {
  kCommitted,  // references/data/NAME holds weights and references
  kAnalytic,   // made in memory; a closed form says what follows a prompt (synthetic.h)
  kUsers,      // the user brings the weights; known by the folder's name and the shape
};

struct ModelRow {
  std::string_view name;  // of --model; of a user's model the last part of its path
  std::string_view help;  // one line; empty: not listed
  ModelShape shape;
  bool tied;  // the LM head is the embedding
  ModelSource source;
  std::string_view lagset;          // of an analytic model; empty: chosen by depth
  std::string_view parity_set;      // the references that judge it (find_references())
  std::string_view weights_sha256;  // over all tensors; empty: not known, or any will do
  bool byte_level;                  // vocabulary: 256 bytes, then bos, eos, pad
};

std::span<const ModelRow> model_rows();

// The row that an item of --model names; null for folders, hub ids and unknown names.
const ModelRow* find_model(std::string_view model);

// The row of a model whose weights have `shape`: by name, or by the last part of a path or hub id.
const ModelRow* find_model(std::string_view model, const ModelShape& shape);

// Weights, references and thus a truth come with mkbench: nothing is judged live.
inline bool has_committed_truth(const ModelRow* row) {
  return row != nullptr && row->source != ModelSource::kUsers;
}
inline bool is_analytic(const ModelRow* row) {
  return row != nullptr && row->source == ModelSource::kAnalytic;
}

// The last part of a path or hub id: what references of a user's model are filed under.
std::string model_folder_name(std::string_view model);

// True where token ids of this vocabulary are bytes.
bool is_byte_level(const ModelShape& shape);

}  // namespace mkbench
