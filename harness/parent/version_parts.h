// Which cases and engines of two reports belong together; shared by the files of versions.h.
#pragma once

#include <string>
#include <vector>

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

inline std::string first_reason(const std::vector<std::string>& reasons) {
  return reasons.empty() ? "no reason recorded" : reasons.front();
}

}  // namespace mkbench
