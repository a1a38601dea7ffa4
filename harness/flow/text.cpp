#include "harness/flow/text.h"

#include <fmt/format.h>

#include "references/model_row.h"

namespace mkbench {

std::string token_text(const ModelShape& shape, int32_t id) {
  if (!is_byte_level(shape)) return std::to_string(id);
  if (id == '\n') return "\\n";
  if (id == '\\') return "\\\\";
  if (id >= 0x20 && id < 0x7f) return std::string(1, static_cast<char>(id));
  if (id >= 0 && id < 256) return fmt::format("\\x{:02x}", id);
  return fmt::format("<{}>", id);  // bos, eos, pad
}

std::string sequence_text(const ModelShape& shape, std::span<const int32_t> ids) {
  const bool bytes = is_byte_level(shape);
  std::string text;
  for (const int32_t id : ids) {
    if (!bytes && !text.empty()) text += ' ';
    text += token_text(shape, id);
  }
  return text;
}

}  // namespace mkbench
