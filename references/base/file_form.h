// What a file is that was given in another one's place, by its first bytes.
#pragma once

#include <string>
#include <string_view>

namespace mkbench {

// Enough of a file's beginning for file_form().
inline constexpr size_t kFormBytes = 512;

inline constexpr std::string_view kGgufForm =
    "a GGUF file: write it as safetensors (transformers: from_pretrained(FOLDER, gguf_file=NAME), "
    "then save_pretrained())";

// "it is a Git LFS pointer (...): fetch the real file with 'git lfs pull' in its folder", or another
// form with what makes a readable file of it. Empty if the bytes tell nothing.
std::string file_form(std::string_view head);

}  // namespace mkbench
