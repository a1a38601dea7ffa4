// Folders that hold a model in a form that the loader does not read, or a part of one.
#pragma once

#include <filesystem>
#include <string>

namespace mkbench {

// What `folder` is instead of a checkpoint, by its place and the names of its files, and how to make one of it: "holds
// 'adapter_config.json', a PEFT adapter: ...". Empty if the names tell nothing.
std::string foreign_folder(const std::filesystem::path& folder);

// Throws Error(kBadInput) if `file` is a link to a file that is not there, as an interrupted download leaves it.
void check_link(const std::filesystem::path& file);

}  // namespace mkbench
