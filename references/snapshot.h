// Turns the text after --model into weights in memory: committed names, the analytic checkpoint,
// folders, hub ids in the local cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "references/model/weights.h"
#include "references/model_row.h"

namespace mkbench {

// The folder of committed data: MKBENCH_DATA_DIR from the environment, else references/data of
// data_root().
std::filesystem::path data_dir();

// What computes the truth by which a model's engines are judged: mkbench, for the families of
// model/family.h, or Hugging Face transformers.
enum class Truth { kMkbench, kTransformers };
// --truth: kAuto takes transformers where no family of mkbench's is the model's; kDequantised takes it
// too, with the weights that the engine says it computes with.
enum class TruthChoice { kAuto, kMkbench, kTransformers, kDequantised };

// An item of --model, resolved once and passed on.
struct Model {
  const ModelRow* row = nullptr;  // null for a folder or hub id
  std::string name{};             // as given
  // Holds config.json and model.safetensors (or the sharded index); empty for an analytic model.
  std::filesystem::path folder{};
  std::string commit{};  // of a hub model, 40 hex digits; else empty
  uint64_t salt = 0;     // of an analytic model (make_synthetic())
  Truth truth = Truth::kMkbench;
  bool is_outline = false;   // only transformers reads its config (outline.h)
  bool dequantised = false;  // the truth's weights are what the engine says its own stand for
};

// has_committed_truth(), and it is the one that judges.
inline bool has_committed_truth(const Model& model) {
  return model.truth == Truth::kMkbench && has_committed_truth(model.row);
}

// Finds the model that `text`, a word after --model, names. Opens no weights. Throws
// Error(kBadInput) naming what was tried.
Model resolve_model(const std::string& text, TruthChoice truth = TruthChoice::kMkbench);

// Config of a model before its weights are loaded. Throws Error(kBadInput).
ModelConfig model_config(const Model& model);

// The model to run at `depth` KV rows: an analytic model without a lag set gets the longest that
// fits; any other model is returned unchanged.
Model model_at_depth(const Model& model, int depth);
// An analytic model with this salt; any other model is returned unchanged.
Model salted(Model model, uint64_t salt);

// The model that parity judges in place of `model`: an analytic model is judged with the lag set of
// its references and without a salt, any other model as it is.
Model parity_model(const Model& model);

struct LoadOptions {
  bool check_finite = true;    // scan every weight for NaN, Inf and all-zero matrices
  bool check_manifest = true;  // compare files with the folder's manifest.json where there is one
  // The hash of all tensors, if the caller has it already. With it and without check_finite the
  // loader reads no tensor's bytes, except to copy one that is rounded or lies misaligned.
  std::string sha256{};
  // An analytic model is made in memory that other processes can open (make_shared_synthetic()).
  bool share = false;
};

// Loads config and weights of a folder: single model.safetensors or model.safetensors.index.json.
// Throws Error(kBadInput).
ModelWeights load_folder(const std::filesystem::path& folder, const std::string& name,
                         const LoadOptions& options = {});

// Calls load_folder() or make_synthetic(). An analytic model without a lag set is made with "none";
// model_at_depth() chooses one by depth. Throws Error(kBadInput), also if a committed model's
// weights differ from the hash in its row.
ModelWeights load_model(const Model& model, const LoadOptions& options = {});

}  // namespace mkbench
