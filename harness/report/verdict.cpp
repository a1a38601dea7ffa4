#include "harness/report/verdict.h"

#include <array>

namespace mkbench {
namespace {

// Exit codes from the gravest to the lightest. An interrupted run leaves the rest unknown, a usage
// error makes the rest meaningless, and a hang or a broken clock outranks what was judged with it.
constexpr std::array<int, 10> kPrecedence = {130, 2, 7, 8, 3, 6, 1, 4, 5, 0};

int rank_of_code(int code) {
  for (size_t i = 0; i < kPrecedence.size(); ++i) {
    if (kPrecedence[i] == code) return static_cast<int>(i);
  }
  return 0;  // an unknown code counts as the gravest, so that no known one hides it
}

// Among verdicts with equal exit codes the first in kVerdicts is the worst. The three that exit 0
// have an order of their own: a live pass claims less than a pass, and a skipped engine does not
// decide for engines that ran.
int rank_inside_code(Verdict v) {
  switch (v) {
    case Verdict::kPassLive:
      return 0;
    case Verdict::kPass:
      return 1;
    case Verdict::kSkipped:
      return 2;
    default:
      return static_cast<int>(v);
  }
}

bool graver(Verdict a, Verdict b) {
  const int code_a = rank_of_code(exit_code(a)), code_b = rank_of_code(exit_code(b));
  return code_a != code_b ? code_a < code_b : rank_inside_code(a) < rank_inside_code(b);
}

const VerdictInfo& info_of(Verdict v) { return kVerdicts[static_cast<size_t>(v)]; }

}  // namespace

std::string_view verdict_name(Verdict v) { return info_of(v).name; }

std::vector<Verdict> enum_values(Tag<Verdict>) {
  std::vector<Verdict> all;
  for (const VerdictInfo& info : kVerdicts) all.push_back(info.verdict);
  return all;
}

int exit_code(Verdict v) { return info_of(v).exit_code; }

Verdict worst(const std::vector<Verdict>& verdicts) {
  if (verdicts.empty()) return Verdict::kPass;
  Verdict result = verdicts.front();
  for (const Verdict v : verdicts) {
    if (graver(v, result)) result = v;
  }
  return result;
}

bool times_allowed(Verdict v) { return v == Verdict::kPass || v == Verdict::kPassLive; }

Verdict verdict_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadInput:
      return Verdict::kBadInput;
    case ErrorKind::kInvalidReference:
      return Verdict::kInvalidReference;
    case ErrorKind::kEnvUnfit:
      return Verdict::kEnvUnfit;
    case ErrorKind::kUnsupportedDevice:
      return Verdict::kUnsupportedDevice;
    case ErrorKind::kCuda:
      return Verdict::kCudaError;
    case ErrorKind::kHang:
      return Verdict::kHang;
    case ErrorKind::kTimeout:
      return Verdict::kTimeout;
    case ErrorKind::kIntegrity:
      return Verdict::kIntegrity;
    case ErrorKind::kRuntime:
      return Verdict::kRuntimeError;
    case ErrorKind::kNotBuilt:
      return Verdict::kSkipped;
  }
  return Verdict::kRuntimeError;
}

}  // namespace mkbench
