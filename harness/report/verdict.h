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
  kNotJudged,  // reference invalid, or the baseline fails against it; always in `mkbench profile`
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

// In the order of the enum.
inline constexpr VerdictInfo kVerdicts[] = {
    {Verdict::kPass, "PASS", 0},
    {Verdict::kPassLive, "PASS_LIVE", 0},
    {Verdict::kRuntimeError, "RUNTIME_ERROR", 1},
    {Verdict::kCudaError, "CUDA_ERROR", 1},
    {Verdict::kBadInput, "BAD_INPUT", 2},
    {Verdict::kFailToken, "FAIL_TOKEN", 3},
    {Verdict::kFailFidelity, "FAIL_FIDELITY", 3},
    {Verdict::kFailSelf, "FAIL_SELF", 3},
    {Verdict::kNondeterministic, "NONDETERMINISTIC", 3},
    {Verdict::kRegression, "REGRESSION", 4},
    {Verdict::kInconclusive, "INCONCLUSIVE", 5},
    {Verdict::kIncomplete, "INCOMPLETE", 5},
    {Verdict::kUnsupportedDevice, "UNSUPPORTED_DEVICE", 6},
    {Verdict::kEnvUnfit, "ENV_UNFIT", 6},
    {Verdict::kInvalidReference, "INVALID_REFERENCE", 6},
    {Verdict::kNotJudged, "NOT_JUDGED", 6},
    {Verdict::kHang, "HANG", 7},
    {Verdict::kTimeout, "TIMEOUT", 7},
    {Verdict::kImpossible, "IMPOSSIBLE", 8},
    {Verdict::kIntegrity, "INTEGRITY", 8},
    {Verdict::kSkipped, "SKIPPED", 0},
    {Verdict::kInterrupted, "INTERRUPTED", 130},
};

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
