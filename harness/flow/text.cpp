#include "harness/flow/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "references/base/printable.h"
#include "references/model_row.h"

namespace mkbench {

std::string token_text(const ModelShape& shape, int32_t id) {
  if (!is_byte_level(shape) || id < 0) return "";
  if (id == '\n') return "\\n";
  if (id == '\\') return "\\\\";
  if (id >= 0x20 && id < 0x7f) return std::string(1, static_cast<char>(id));
  if (id < 256) return fmt::format("\\x{:02x}", id);
  return fmt::format("<{}>", id);  // bos, eos, pad
}

std::string token_text(const ModelShape& shape, const std::vector<GreedyReference>& references,
                       int32_t id) {
  for (const GreedyReference& reference : references) {
    const auto known = reference.texts.find(id);
    if (known != reference.texts.end()) return known->second;
    for (const ReferencePrompt& prompt : reference.prompts) {
      for (size_t t = 0; t < std::min(prompt.steps.size(), prompt.token_texts.size()); ++t)
        if (prompt.steps[t].token == id) return prompt.token_texts[t];
    }
  }
  return token_text(shape, id);
}

JudgedText judged_text(const std::vector<GreedyReference>& references,
                       const std::vector<ParityRow>& rows) {
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      if (prompt.text.empty() || prompt.token_texts.empty()) continue;
      JudgedText text{prompt.text, ""};
      for (const ParityRow& row : rows) {
        if (row.prompt == prompt.name) text.continuation += row.engine_text;
      }
      return text;
    }
  }
  return {};
}

std::optional<std::string> sequence_text(const std::vector<TokenText>& texts,
                                         std::span<const int32_t> ids) {
  std::map<int32_t, std::string> bytes;
  for (const TokenText& one : texts) {
    std::optional<std::string> found = bytes_of_printable(one.text);
    if (!found) return std::nullopt;
    bytes[one.id] = std::move(*found);
  }
  std::string all;
  for (const int32_t id : ids) {
    const auto known = bytes.find(id);
    if (known == bytes.end()) return std::nullopt;
    all += known->second;
  }
  return printable(all);
}

std::string sequence_text(const ModelShape& shape, std::span<const int32_t> ids) {
  const bool bytes = is_byte_level(shape);
  std::string text;
  for (const int32_t id : ids) {
    if (!bytes && !text.empty()) text += ' ';
    text += bytes ? token_text(shape, id) : std::to_string(id);
  }
  return text;
}

}  // namespace mkbench
