#include "references/base/file_form.h"

#include <fmt/format.h>

#include "references/base/json_strict.h"

namespace mkbench {
namespace {

using namespace std::string_view_literals;

// The word after `key` in a Git LFS pointer, at most 80 characters because anything may follow; an
// oid ("sha256:" and 64 digits) has 71.
std::string_view lfs_field(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return "?";
  text = text.substr(at + key.size(), 80);
  return text.substr(0, text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz:"));
}

struct Form {
  size_t at;
  std::string_view bytes;
  std::string_view text;
};
constexpr Form kForms[] = {
    {0, "GGUF"sv, kGgufForm},
    {0, "PK\x03\x04"sv,
     "a zip archive (PyTorch .bin or .pt?): unpack it, or load it with torch and "
     "save it with save_pretrained()"},
    {0, "\x93NUMPY"sv, "an array of NumPy: write it as safetensors"},
    {0, "\x1f\x8b"sv, "a file packed by gzip: unpack it (tar -xf, gunzip)"},
    {0, "BZh"sv, "a file packed by bzip2: unpack it (tar -xf)"},
    {0, "\xfd\x37zXZ"sv, "a file packed by xz: unpack it (tar -xf)"},
    {0, "\x28\xb5\x2f\xfd"sv, "a file packed by zstd: unpack it (tar -xf)"},
    {257, "ustar"sv, "a tar archive: unpack it (tar -xf)"},
};

}  // namespace

std::string file_form(std::string_view head) {
  if (head.starts_with("version https://git-lfs"))
    return fmt::format(
        "it is a Git LFS pointer (oid {}, size {}): fetch the real file with "
        "'git lfs pull' in its folder",
        lfs_field(head, "\noid "), lfs_field(head, "\nsize "));
  for (const Form& form : kForms) {
    if (head.size() > form.at && head.substr(form.at).starts_with(form.bytes))
      return fmt::format("it looks like {}", form.text);
  }
  if (head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return fmt::format(
        "it looks like a Python pickle (protocol {}), which is never opened because it may run "
        "code: write the model as safetensors (transformers: save_pretrained())",
        static_cast<int>(head[1]));
  const size_t start = head.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && head.substr(start).starts_with("<"))
    return fmt::format(
        "it is a page of HTML or XML, mostly a server's error or login (first bytes: {}): download "
        "the file again",
        in_quotes(head.substr(start, 48), 60));
  return {};
}

}  // namespace mkbench
