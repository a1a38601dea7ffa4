// What versions.h and builds.h share: which cases and engines of two reports belong together, and how
// two times become a row of a gate.
#pragma once

#include <string>
#include <vector>

#include "harness/archive/versions.h"
#include "harness/report/report.h"

namespace mkbench {

// The confidence of a report's intervals.
double confidence_of(const Report& report);

// The case of another report with the model and the axes of this one; null where there is none.
const CaseReport* case_like(const CaseReport& c, const Report& in);

// The engine of another case that was asked for by the same name, in the same role; the second one
// where the engine, which is one of `c`, is the second one of its name. Null where there is none.
const EngineReport* engine_like(const CaseReport& c, const EngineReport& e, const CaseReport& in);

// Whether an engine's time decides.
inline bool gates(const EngineReport& e) { return e.role == "candidate"; }

std::optional<double> mean_ms(const EngineReport& e);
VersionRow row_for(const CaseReport& c, const EngineReport& e);
VersionSide side_of(const Report& report, const std::string& name);
void set_ratio(const TimeRatio& ratio, VersionRow& row);

// False where one of both has no time; the row then says what that means.
bool both_have_times(const EngineReport& base, const EngineReport& head, VersionRow& row);
// Sets the row's verdict by the times of two engines that have some. `relative`: null without a control.
void judge_times(const EngineReport& base, const EngineReport& head, const RatioIntervals& ratio,
                 const RelativeRatio* relative, const VersionGate& gate, VersionRow& row);

// The machine and the limits of a gate. Throws what allowed_regress() throws.
void begin_gate(const Report& report, const SpeedMargin& margin, const GateLimits& limits,
                VersionGate& gate);
// The verdict of all rows: one that is INCONCLUSIVE hides none that has failed, INCOMPLETE included.
void conclude_gate(VersionGate& gate);

inline std::string first_reason(const std::vector<std::string>& reasons) {
  return reasons.empty() ? "no reason recorded" : reasons.front();
}

}  // namespace mkbench
