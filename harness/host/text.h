// Token ids as a person reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "references/qwen3.h"

namespace mkbench {

// One id: a printable byte as itself, other bytes escaped, where the vocabulary is the tiny
// checkpoints' byte-level one; the id in decimals elsewhere (there is no tokenizer in mkbench).
std::string token_text(const ModelShape& shape, int32_t id);

// A generated sequence: text without separators for bytes, ids with spaces otherwise.
std::string sequence_text(const ModelShape& shape, std::span<const int32_t> ids);

}  // namespace mkbench
