// Token ids as readable text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "references/model_shape.h"

namespace mkbench {

// The text of one id. In the byte-level vocabulary of the tiny checkpoints a printable byte stands
// for itself and other bytes are escaped; in other vocabularies the text is the id in decimals
// (mkbench has no tokenizer).
std::string token_text(const ModelShape& shape, int32_t id);

// The text of a sequence: bytes without separators, other ids with spaces between them.
std::string sequence_text(const ModelShape& shape, std::span<const int32_t> ids);

}  // namespace mkbench
