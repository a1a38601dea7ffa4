// Concludes a run: figures and verdicts of engines, cases and the report, from samples and from
// what parity found. No other file gives verdicts on timings.
#pragma once

#include <cstdint>

#include "harness/report/report.h"
#include "harness/report/soak_report.h"

namespace mkbench {

// Fills every aggregate of a case from its samples and verdicts: summaries, tok/s, percentiles,
// shares of the ceiling, ratios of every two timed engines and their verdicts by `margin`. Withholds
// all times of an engine unless times_allowed(verdict) and every sample is valid. Sharpens a passing
// verdict: FAIL_TOKEN for a wrong receipt, INTEGRITY for an invalid sample or missing receipts,
// IMPOSSIBLE under the least time that the memory's pins allow. May be called again when samples were
// added.
void aggregate(CaseReport& c, double confidence, uint64_t seed, bool random_order,
               const SpeedMargin& margin = {});

// Verdict of a report from its cases' verdicts (a case's is the worst of its engines' and of its
// own, if it has failed before it had engines). A report without cases keeps its verdict if that is
// a failure; else it becomes RUNTIME_ERROR.
void conclude(Report& report);

// Fills in verdict, reason and exit code. `interrupted`: Ctrl-C has ended the soak.
void conclude(SoakReport& report, bool interrupted);

}  // namespace mkbench
