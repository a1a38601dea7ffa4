// config.json of a checkpoint, read strictly: a missing key is an error and never takes the default
// of a model class, unless its family (model/family.h) has one rule for it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "references/model/architecture.h"

namespace mkbench {

// Parses the text of a config.json. `path` is used in messages only.
// Throws Error(kBadInput) naming path, key, found and wanted; tests/support/config_cases.cpp lists
// the defects.
ModelConfig parse_config(std::string_view text, const std::string& path);

// The text of a config.json that parse_config() reads back to the same config (but for
// Rope::theta_key) and Hugging Face transformers accepts. Its family is one that computes the same,
// and it has no special tokens: a ModelConfig does not hold them.
std::string config_text(const ModelConfig& config);

inline constexpr size_t kMaxConfigBytes = 1'000'000;

// Reads and parses a config.json of at most kMaxConfigBytes. Throws Error(kBadInput).
ModelConfig read_config(const std::filesystem::path& path);

}  // namespace mkbench
