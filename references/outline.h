// The outline of a model that only transformers computes: what config.json and the tensors' headers
// say of its size. Everything else about it stays with transformers.
#pragma once

#include <filesystem>
#include <string>

#include "references/model/weights.h"

namespace mkbench {

// True if the folder's config.json names a model_type that is of no family of model/family.h, or
// weights that are quantised, so that transformers is the only reader left. False where it cannot be
// read.
bool is_foreign_model(const std::filesystem::path& folder);

// True if the loader reads the folder's config.json without a finding.
bool is_loadable_config(const std::filesystem::path& folder);

// Vocabulary, width, layers and longest context (2,048 where none is stated), from config.json or its
// text_config, under the names that most of transformers' classes give them; whether there is a router;
// and bytes and values of all tensors. Throws Error(kBadInput) naming
// the missing key, and for weights that are no safetensors.
ModelConfig outline_config(const std::filesystem::path& folder);

// outline_config(), the folder, its open files, and a hash over names and bytes of all tensors: no
// matrices. A caller that has the hash already gives it as `sha256`; then no tensor's bytes are read.
// Throws Error(kBadInput), also where a file differs from the folder's manifest.json, which is read
// for the hash alone.
ModelWeights load_outline(const std::filesystem::path& folder, const std::string& name,
                          const std::string& sha256 = {});

}  // namespace mkbench
