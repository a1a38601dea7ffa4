// The check `head`: any row of the LM head can win, and of equal rows the lowest id does.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "harness/judge/findings.h"
#include "references/model/weights.h"

namespace mkbench {

// Opens the engine under test on other weights of the same shape.
using OpenOn = std::function<std::unique_ptr<Engine>(const ModelWeights& weights)>;

// Opens the engine on weights whose vocabulary is renamed: rows of embedding and head change places
// together, so the model is the same under other ids, tied or not. The ids that win in a prompt of
// the references get rows from the first to the last of the head, and every second one an equal row
// elsewhere. Teacher-forced, the engine must give the truth's ids by their new names, and of two
// equal rows the lower id. `logits_bf16`: as in ParityOptions. `stop` is called before every opening
// and may throw.
void judge_head(const ModelWeights& weights, const std::vector<GreedyReference>& references,
                bool logits_bf16, const OpenOn& open, const std::function<void()>& stop,
                Findings& findings);

}  // namespace mkbench
