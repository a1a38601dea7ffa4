// Concludes a run: figures and verdicts of engines, cases and the report, from samples and from
// what parity found. comparisons.h gives the verdicts of speed-ups.
#pragma once

#include <cstdint>

#include "harness/report/report.h"
#include "harness/report/soak_report.h"

namespace mkbench {

// Fills every aggregate of a case from its samples and verdicts: summaries, tok/s, percentiles,
// shares of the ceiling, ratios of every two timed engines and their verdicts by `margin`.
// Withholds all times of an engine unless times_allowed(verdict) and every sample is valid. Turns
// a pass into FAIL_TOKEN for a wrong receipt; INTEGRITY for an invalid sample, a sample without a
// time or missing receipts; IMPOSSIBLE for times below the least that the memory's pins allow. May
// be called again after samples were added.
void aggregate(CaseReport& c, double confidence, uint64_t seed, bool random_order,
               const SpeedMargin& margin = {});

// Sets the verdict of each case to the worst of its engines' and its own (set if it failed before
// any engine ran), and the verdict of the report to the worst of its cases' and its own failure;
// INTERRUPTED if it was interrupted. A report without any of these becomes RUNTIME_ERROR.
void conclude(Report& report);

// Fills in verdict, reason and exit code. `interrupted`: Ctrl-C has ended the soak.
void conclude(SoakReport& report, bool interrupted);

}  // namespace mkbench
