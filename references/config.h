// config.json of a Qwen3 or Qwen3-TTS checkpoint, read strictly: a missing key is an error and
// never takes the default of a model class.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "references/model_shape.h"

namespace mkbench {

// Everything about a model that is not a weight. All of it comes from the file; nothing is guessed.
struct ModelConfig {
  ModelShape shape{};
  double rope_theta = 0;       // as written in the file; > 0
  std::string rope_theta_key;  // which key it came from, e.g. "rope_parameters.rope_theta"
  double rms_norm_eps = 0;     // > 0
  bool tie_word_embeddings = false;
  int max_positions = 0;  // longest context, in positions
};

// Parses the text of a config.json. `path` is used in messages only.
// Throws Error(kBadInput) naming path, key, found and wanted; tests/support/config_cases.cpp lists
// the defects.
ModelConfig parse_config(std::string_view text, const std::string& path);

// The text of a config.json that parse_config() reads back to the same config (but for
// rope_theta_key) and Hugging Face transformers accepts. It has no special tokens: a ModelConfig
// does not hold them.
std::string config_text(const ModelConfig& config);

// Reads and parses a config.json of at most 1 MB. Throws Error(kBadInput).
ModelConfig read_config(const std::filesystem::path& path);

}  // namespace mkbench
