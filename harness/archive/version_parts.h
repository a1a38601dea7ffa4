// What versions.h and builds.h share: which cases and engines of two reports belong together, and
// how two times become a row of a gate.
#pragma once

#include <string>
#include <vector>

#include "harness/archive/versions.h"
#include "harness/report/report.h"

namespace mkbench {

// The confidence of a report's intervals.
double confidence_of(const Report& report);

// The case of report `in` with the same model and axes as `c`; null if there is none.
const CaseReport* case_like(const CaseReport& c, const Report& in);

// The engine of case `in` with the name and role of `e`, an engine of `c`; if several engines share
// them, the one at the same place among these. Null if there is none.
const EngineReport* engine_like(const CaseReport& c, const EngineReport& e, const CaseReport& in);

// True if an engine's time counts for the gate's verdict.
inline bool gates(const EngineReport& e) { return e.role == "candidate"; }

std::optional<double> mean_ms(const EngineReport& e);
VersionRow row_for(const CaseReport& c, const EngineReport& e);
VersionSide side_of(const Report& report, const std::string& name);
void set_ratio(const TimeRatio& ratio, VersionRow& row);

// False if either engine has no time; verdict and reason of the row are then set.
bool both_have_times(const EngineReport& base, const EngineReport& head, VersionRow& row);
// Sets the row's verdict from the times of two engines. `relative`: null without a control.
void judge_times(const EngineReport& base, const EngineReport& head, const RatioIntervals& ratio,
                 const RelativeRatio* relative, const VersionGate& gate, VersionRow& row);

// Sets the machine and the limits of a gate. Throws what allowed_regress() throws.
void begin_gate(const Report& report, const SpeedMargin& margin, const GateLimits& limits,
                VersionGate& gate);
// Sets the gate's verdict from its rows; a failed or INCOMPLETE row outweighs an INCONCLUSIVE one.
void conclude_gate(VersionGate& gate);

inline std::string first_reason(const std::vector<std::string>& reasons) {
  return reasons.empty() ? "no reason recorded" : reasons.front();
}

}  // namespace mkbench
