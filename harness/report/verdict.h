// Verdicts and exit codes: the one table that reports, JUnit, messages and main() read.
#pragma once

#include <string_view>
#include <vector>

#include "references/base/error.h"
#include "references/base/fields.h"

namespace mkbench {

enum class Verdict {
  kPass,
  kPassLive,  // judged against a truth computed in the same run, not a committed reference
  kRuntimeError,
  kCudaError,
  kBadInput,
  kFailToken,
  kFailFidelity,
  kFailSelf,
  kNondeterministic,
  kRegression,
  kInconclusive,
  kIncomplete,  // the time budget ended before the checks that a pass needs
  kUnsupportedDevice,
  kEnvUnfit,
  kInvalidReference,
  kNotJudged,  // the candidate of a case whose baseline failed its own gate
  kHang,
  kTimeout,
  kImpossible,
  kIntegrity,
  kSkipped,
  kInterrupted,
};

struct VerdictInfo {
  Verdict verdict;
  std::string_view name;  // as written in reports: "PASS", "FAIL_TOKEN", ...
  int exit_code;
};

const std::vector<VerdictInfo>& verdict_table();
std::string_view verdict_name(Verdict v);
int exit_code(Verdict v);
// The worst of several verdicts, in the order of exit codes 130 > 2 > 7 > 8 > 3 > 6 > 1 > 4 > 5 >
// 0; kPass for none.
Verdict worst(const std::vector<Verdict>& verdicts);
// True for the two verdicts whose times may be shown.
bool times_allowed(Verdict v);
Verdict verdict_of(ErrorKind kind);

constexpr std::string_view struct_name(Tag<Verdict>) { return "verdict_name"; }
inline std::string_view enum_text(Verdict v) { return verdict_name(v); }
std::vector<Verdict> enum_values(Tag<Verdict>);

}  // namespace mkbench
