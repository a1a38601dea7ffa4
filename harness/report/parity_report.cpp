#include "harness/report/parity_report.h"

#include <algorithm>

namespace mkbench {

std::string_view step_verdict_name(StepVerdict v) {
  switch (v) {
    case StepVerdict::kExact:
      return "EXACT";
    case StepVerdict::kTie:
      return "TIE";
    case StepVerdict::kDrift:
      return "DRIFT";
    case StepVerdict::kWrong:
      return "WRONG";
  }
  return "WRONG";
}

std::vector<StepVerdict> enum_values(Tag<StepVerdict>) {
  return {StepVerdict::kExact, StepVerdict::kTie, StepVerdict::kDrift, StepVerdict::kWrong};
}

const CheckResult* find_check(const ParityReport& report, Check check) {
  const auto found = std::find_if(report.checks.begin(), report.checks.end(),
                                  [check](const CheckResult& c) { return c.check == check; });
  return found == report.checks.end() ? nullptr : &*found;
}

}  // namespace mkbench
