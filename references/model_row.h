// The models that have a name in mkbench: one row each. Command line, plan, list, gate and loader
// read the rows; those of published models follow from model/published.h. A snapshot folder or hub id
// without a row is a model of the user.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "references/model/published.h"

namespace mkbench {

enum class ModelSource {
  kCommitted,  // references/data/NAME holds weights and references
  kFetched,    // in the user's cache once `mkbench fetch NAME` ran; data/NAME has references
  kAnalytic,   // made in memory; a closed form gives the ids after a prompt (synthetic.h)
  kUsers,      // the user has the weights; recognised by the folder's name and the shape
};

struct ModelRow {
  std::string_view name;    // the word after --model; for a user's model the last part of its path
  std::string_view help{};  // one line; empty: `list` leaves the row out
  ModelShape shape;
  bool tied;  // the LM head is the embedding
  ModelSource source;
  const ShapeRow* published = nullptr;  // the published model; null for the tiny ones
  std::string_view lagset{};            // for an analytic model; empty: chosen by depth
  std::string_view parity_set{};        // the references that judge it (find_references())
  bool committed_references = false;    // references named parity_set come with mkbench
  std::string_view weights_sha256{};    // over all tensors; empty: not known, or not checked
  bool byte_level = false;              // vocabulary: 256 bytes, then bos, eos, pad
};

// Every row except those that only find_model() finds: the alias synthetic:qwen3-0.6b[:LAGSET], the
// lag sets of the other shapes, and the cut (kCutRow).
std::span<const ModelRow> model_rows();

// The row named `model`; null for unknown names, folders, hub ids and rows of ModelSource::kUsers.
const ModelRow* find_model(std::string_view model);

// The row of a model whose weights have `shape`, found by its name or by the last part of a path or
// hub id, in lower or upper case.
const ModelRow* find_model(std::string_view model, const ModelShape& shape);

// True if weights and references come with mkbench, so that no truth has to be computed in the run.
// False for the analytic weights of most shapes: they have a closed form, but no such references.
inline bool has_committed_truth(const ModelRow* row) {
  return row != nullptr && row->source != ModelSource::kUsers && row->committed_references;
}
inline bool is_analytic(const ModelRow* row) {
  return row != nullptr && row->source == ModelSource::kAnalytic;
}

// True if later cases of a run may reuse the parity result of one case of this model. A truth that
// is computed in the run (`live`) scores the timed tokens of one case alone. Analytic weights have
// a closed form for timed tokens, and all their cases share the prompts.
inline bool may_take_over(const ModelRow* row, bool live) { return !live || is_analytic(row); }

// The lag set on which an analytic model is judged.
std::string_view parity_lagset(const ModelRow& row);

// The last part of a path or hub id, which names the folder of references of a user's model.
std::string model_folder_name(std::string_view model);

// True where token ids of this vocabulary are bytes.
bool is_byte_level(const ModelShape& shape);

}  // namespace mkbench
