// The checks of the gate, by name: what reports, JUnit, the fault corpus and the README call them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

enum class Check {
  kConfig,     // loader: config and tensors are those of the model (faults.md CFG)
  kWeights,    // loader: sha256 of the weights, prompt ids of the reference
  kRan,        // the launch counter moved and every id came back
  kFinite,     // no NaN or Inf in logits, hidden states, written KV rows
  kRms,        // R_rms <= 1.25
  kStep,       // R_step <= 3
  kInf,        // R_inf <= 2
  kKl,         // R_KL <= 1.5
  kRatchet,    // R_rms <= 1.10 x the committed value
  kDecided,    // decided steps emit T's token
  kNearTie,    // near ties stay within tau of the top
  kFlips,      // flip cap
  kSelf,       // emitted id = lowest-index argmax of the engine's own logits
  kStrict,     // free-running ids of the strict set are equal
  kSame,       // equal ids with and without logits
  kRepeats,    // the same input again: bit-identical logits
  kSweep,      // every cache length
  kIsolation,  // A, B, A equals A; prefix rows unchanged; rows beyond the position untouched
  kReceipts,   // timed ids are the checked ids (committed continuation or closed form)
};

// kNotApplicable: an engine, a model or a reference rules the check out; the detail says which.
enum class CheckStatus { kPassed, kFailed, kNotApplicable };

struct CheckInfo {
  Check check;
  std::string_view name;     // in reports
  std::string_view promise;  // one line, for people
};

// In the order of the enum.
const std::vector<CheckInfo>& check_table();
std::string_view check_name(Check c);
// "passed", "failed", "not_applicable".
std::string_view check_status_name(CheckStatus s);

constexpr std::string_view struct_name(Tag<Check>) { return "check_name"; }
inline std::string_view enum_text(Check c) { return check_name(c); }
std::vector<Check> enum_values(Tag<Check>);

constexpr std::string_view struct_name(Tag<CheckStatus>) { return "check_status_name"; }
inline std::string_view enum_text(CheckStatus s) { return check_status_name(s); }
std::vector<CheckStatus> enum_values(Tag<CheckStatus>);

// What one check said about one engine.
struct CheckResult {
  Check check = Check::kRan;
  CheckStatus status = CheckStatus::kPassed;
  std::optional<double> value{}, limit{};  // where the check is a number
  std::string detail{};                    // why it failed, or does not apply; else empty
};

constexpr std::string_view struct_name(Tag<CheckResult>) { return "check"; }
template <typename V>
void describe_fields(V& v, Tag<CheckResult>) {
  v.field("name", &CheckResult::check, "which check");
  v.field("status", &CheckResult::status, "passed, failed or not_applicable");
  v.field("value", &CheckResult::value, "what was found, where the check is a number");
  v.field("limit", &CheckResult::limit, "largest value that passes; null where none is judged");
  v.field("detail", &CheckResult::detail, "why it failed or does not apply; else empty");
}

}  // namespace mkbench
