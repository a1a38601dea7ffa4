// Is an engine quicker where nobody looks? Compares its timed decodes with decodes that were asked
// for logits as well.
#pragma once

#include "harness/report/report.h"

namespace mkbench {

// Fills in the figures and the caution of e.observed, for an engine whose times are shown.
void fill_observed(EngineReport& e);

// Makes a verdict INCONCLUSIVE that favours an engine with such a caution.
void withhold_unobserved(const EngineReport& baseline, const EngineReport& candidate,
                         ComparisonReport& c);

}  // namespace mkbench
