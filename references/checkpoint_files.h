// The safetensors files of a snapshot folder, opened: one model.safetensors, or the shards that
// model.safetensors.index.json names.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "references/base/bf16.h"
#include "references/model_finding.h"
#include "references/safetensors.h"
#include "references/stored_values.h"

namespace mkbench {

struct Checkpoint {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, Located> tensors;
  std::vector<std::vector<Bf16>> copies;  // tensors that are rounded, or misaligned in their file
  std::string names_file;                 // path of the file that lists the tensors' names
  std::set<std::string> unread;           // tensors of shards that could not be opened
  bool opened = true;                     // false: no name of a tensor could be read
};

// Opens the folder's files. Throws as ModelFindings::add() does; if findings are collected, a file
// that cannot be read becomes a finding and the other files are opened.
Checkpoint open_checkpoint(const std::filesystem::path& folder, ModelFindings& findings);

// Throws Error(kBadInput) where the folder has a manifest.json and a file differs from it. A
// config.json that the manifest does not list may be the user's own and is accepted.
void check_manifest(const std::filesystem::path& folder, const Checkpoint& checkpoint);

// Calls `use` and returns true. If findings are collected, an Error(kBadInput) becomes a fatal
// finding of `field` with `file` as its source, and the result is false.
bool attempt(ModelFindings& findings, const std::filesystem::path& file, const std::string& field,
             const std::function<void()>& use);

}  // namespace mkbench
