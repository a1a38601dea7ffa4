// References without logits: published continuations.
#pragma once

#include <vector>

#include "references/greedy_reference.h"

namespace mkbench {

// Joins token-only references of one model: continuations of the same prompt ids become
// alternatives of each other. Throws Error(kInvalidReference) for none, for references with logits,
// and for different weights.
GreedyReference merge_token_only(const std::vector<GreedyReference>& references);

}  // namespace mkbench
