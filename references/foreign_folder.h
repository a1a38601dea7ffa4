// Folders that hold a model in a form that the loader does not read.
#pragma once

#include <filesystem>
#include <string>

namespace mkbench {

// What `folder` holds instead of config.json and safetensors, by the names of its files, and how to
// make a checkpoint of it: "'adapter_config.json', a PEFT adapter: ...".
// Empty if the names tell nothing.
std::string foreign_folder(const std::filesystem::path& folder);

}  // namespace mkbench
