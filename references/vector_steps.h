// The arguments of Engine::decode_vectors(), and the check that all engines make of them.
#pragma once

#include <cstdint>
#include <string>

#include "references/base/bf16.h"

namespace mkbench {

// What decode_vectors() reads and writes. All arrays are in host memory.
struct VectorSteps {
  const Bf16* in = nullptr;  // [n, hidden], finite; null: ids, as in decode()
  // Null, or [3, n]: the rows of positions that the caller's mRoPE would rotate by. Engines count
  // positions themselves, so these are only compared.
  const int32_t* positions = nullptr;
  float* hidden_out =
      nullptr;  // null, or [n, hidden]: after the final norm, as the LM head reads it
  float* logits_out = nullptr;  // null, or [n, vocab]
};

// Checks the inputs of n >= 1 steps that begin with `position` KV rows. Throws Error(kBadInput),
// which begins with `who`, if a value of `in` is not finite, or if `positions` are not three equal
// rows that count up from `position`: only with such rows is mRoPE plain RoPE.
void check_vector_steps(const std::string& who, int n, const VectorSteps& steps, int hidden,
                        int position);

}  // namespace mkbench
