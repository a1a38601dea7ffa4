// Times of an engine by process, and the ratios of every two engines of a case.
#pragma once

#include <vector>

#include "harness/report/report.h"

namespace mkbench {

// Valid samples' ms/token by process, in the order of their blocks.
ByProcess times_by_process(const std::vector<Sample>& samples);
// Mean ms/token of each process, divided by the mean of `control` in the same process.
ByProcess times_over(const std::vector<Sample>& samples, const std::vector<Sample>& control);
// ms/token of the blocks that both engines have, by process.
std::vector<PairedBlocks> paired_blocks(const std::vector<Sample>& baseline,
                                        const std::vector<Sample>& candidate);

// Every candidate against every baseline, with a reason instead of a ratio if one of them has no
// times; then every other pair of engines with times, the earlier one in the case as the baseline.
std::vector<ComparisonReport> compare_engines(const CaseReport& c, double confidence, uint64_t seed,
                                              bool random_order, const SpeedMargin& margin);

}  // namespace mkbench
