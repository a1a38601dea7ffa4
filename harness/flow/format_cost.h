// What the format of a quantised model costs, computed by the truth of two models, one after the other.
#pragma once

#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/watch.h"
#include "references/greedy_reference.h"

namespace mkbench {

// At most this many ids, because the logits of all of them are kept.
inline constexpr size_t kCostSteps = 512;

// Whether a case tells it: the first of a model, with an original, which may be the model itself where a
// candidate has quantised that.
bool tells_cost(const CaseJob& job, const std::vector<Contestant*>& candidates);

// The references' prompts and answers, cut to kCostSteps in all, under the job's original model and
// under its own. No other engine should be open.
FormatCost cost_of_format(const CaseJob& job, const CaseServices& services,
                          const ModelWeights& weights,
                          const std::vector<GreedyReference>& references, int max_context,
                          ProgressWatch& watch);

}  // namespace mkbench
