// Token ids as readable text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/report/parity_report.h"
#include "harness/report/token_text.h"
#include "references/greedy_reference.h"
#include "references/model/shape.h"

namespace mkbench {

// The text of one id. In the byte-level vocabulary of the tiny checkpoints a printable byte stands
// for itself and other bytes are escaped. Other vocabularies get "" here: their texts come from the
// references or from the tokenizer of the model's folder, which is read once per report.
std::string token_text(const ModelShape& shape, int32_t id);

// The text of `id` in the references (models with a tokenizer), else token_text(shape, id).
std::string token_text(const ModelShape& shape, const std::vector<GreedyReference>& references,
                       int32_t id);

// The first judged prompt that has a text, and the text of the ids that the engine put after it.
// Both are empty if the references have no texts.
struct JudgedText {
  std::string prompt, continuation;
};
JudgedText judged_text(const std::vector<GreedyReference>& references,
                       const std::vector<ParityRow>& rows);

// Joins the tokenizer's texts of a sequence; bytes of several tokens may form one character.
// nullopt if `texts` lacks an id or has a text that is not byte-level.
std::optional<std::string> sequence_text(const std::vector<TokenText>& texts,
                                         std::span<const int32_t> ids);

// The text of a sequence: bytes without separators; other ids as decimals, separated by spaces.
std::string sequence_text(const ModelShape& shape, std::span<const int32_t> ids);

}  // namespace mkbench
