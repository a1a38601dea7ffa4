// The checks of the gate, by name: what reports, JUnit, the fault corpus and the README call them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

// A failure that one step shows leaves a file of that step in the report's folder (failed_step.h):
// - finite (of logits), the four ratios, ratchet, decided, near_tie, flips, strict: the first step
//   that is wrong or not finite, else the one farthest from the truth;
// - self, sweep, and same (if the free run differs): the first step that fails;
// - receipts: the first wrong id of the engine's timed runs.
// Other failures show in no single step: config and weights fail before any step runs; ran is about
// launches and ids that never came; repeats and isolation compare several runs, head runs on other
// weights, and a state receipt compares two states. A crash, a hang and clocks that disagree are not
// checks and leave no file.
enum class Check {
  kConfig,     // loader: config and tensors are those of the model
  kWeights,    // loader: sha256 of the weights, prompt ids of the reference
  kRan,        // the launch counter moved and every id came back
  kFinite,     // no NaN or Inf in logits, hidden states, written KV rows
  kRms,        // R_rms; the limits of the ratios depend on the precision class (ratios.h)
  kStep,       // R_step
  kInf,        // R_inf
  kKl,         // R_KL
  kRatchet,    // no ratio is far above its committed value; the value shown is R_rms
  kDecided,    // decided steps emit the truth's token
  kNearTie,    // near ties stay within tau of the top
  kFlips,      // at most flips_allowed flips (judge/flips.h)
  kSelf,       // emitted id = lowest-index argmax of the engine's own logits
  kStrict,     // free-running ids of the strict set are the truth's
  kSame,       // equal ids with and without logits
  kRepeats,    // repeated input gives bit-identical ids and logits
  kSweep,      // every cache length gives the right token and no large logit error
  kIsolation,  // same bits after another prompt and beside a second engine; prefix rows and memory
               // unchanged, nothing left behind by a call
  kHead,       // any row of the LM head can win, of equal rows the lowest id does
  kReceipts,   // timed ids are the right ones (closed form, or scored by the truth)
};

// kNotApplicable: an engine, a model or a reference rules the check out, or the time budget ended
// first; the detail says which.
enum class CheckStatus { kPassed, kFailed, kNotApplicable };

struct CheckInfo {
  Check check;
  std::string_view name;     // in reports
  std::string_view promise;  // one line, for people
};

// In the order of the enum.
inline constexpr CheckInfo kChecks[] = {
    {Check::kConfig, "config", "config and tensors are those of the model"},
    {Check::kWeights, "weights", "weights and prompt ids are those of the reference"},
    {Check::kRan, "ran", "the engine ran: the launch counter moved, every id came back"},
    {Check::kFinite, "finite", "no NaN or Inf in logits, hidden states or written KV rows"},
    {Check::kRms, "r_rms", "logit error over all steps, against that of the bf16 baseline"},
    {Check::kStep, "r_step", "largest logit error of one step"},
    {Check::kInf, "r_inf", "largest error of one logit among the top 32"},
    {Check::kKl, "r_kl", "divergence of the next-token distribution"},
    {Check::kRatchet, "ratchet", "no ratio is far above this engine's committed one"},
    {Check::kDecided, "decided", "decided steps emit the reference's token"},
    {Check::kNearTie, "near_tie", "near ties stay within tau of the top"},
    {Check::kFlips, "flips", "no more flips than near ties and the baseline's errors allow"},
    {Check::kSelf, "self", "the emitted id is the lowest-index argmax of the engine's logits"},
    {Check::kStrict, "strict", "free-running ids of the strict set equal the reference's"},
    {Check::kSame, "same", "equal ids with and without logits"},
    {Check::kRepeats, "repeats", "the same input again gives the same bits"},
    {Check::kSweep, "sweep", "every cache length gives the right token and no large logit error"},
    {Check::kIsolation, "isolation",
     "no sequence changes another one or its own prefix's rows, or leaves anything behind"},
    {Check::kHead, "head", "any row of the LM head can win; of equal rows the lowest id does"},
    {Check::kReceipts, "receipts", "timed ids are right, by the closed form or the truth"},
};
constexpr std::string_view check_name(Check c) { return kChecks[static_cast<size_t>(c)].name; }

constexpr std::string_view struct_name(Tag<Check>) { return "check_name"; }
constexpr std::string_view enum_text(Check c) { return check_name(c); }
inline std::vector<Check> enum_values(Tag<Check>) {
  std::vector<Check> all;
  for (const CheckInfo& info : kChecks) all.push_back(info.check);
  return all;
}

constexpr std::string_view struct_name(Tag<CheckStatus>) { return "check_status_name"; }
constexpr std::string_view enum_text(CheckStatus s) {
  return s == CheckStatus::kPassed   ? "passed"
         : s == CheckStatus::kFailed ? "failed"
                                     : "not_applicable";
}
inline std::vector<CheckStatus> enum_values(Tag<CheckStatus>) {
  return {CheckStatus::kPassed, CheckStatus::kFailed, CheckStatus::kNotApplicable};
}

// Result of one check of one engine.
struct CheckResult {
  Check check = Check::kRan;
  CheckStatus status = CheckStatus::kPassed;
  std::optional<double> value{}, limit{};  // if the check measures a number
  std::string detail{};                    // why it failed or does not apply, or what it covered
};

constexpr std::string_view struct_name(Tag<CheckResult>) { return "check"; }
template <typename V>
void describe_fields(V& v, Tag<CheckResult>) {
  v.field("name", &CheckResult::check, "which check");
  v.field("status", &CheckResult::status, "passed, failed or not_applicable");
  v.field("value", &CheckResult::value,
          "what was found, if the check measures a number; else null");
  v.field("limit", &CheckResult::limit, "largest value that passes; null where none is judged");
  v.field("detail", &CheckResult::detail,
          "why it failed or does not apply, or what it covered; may be empty");
}

}  // namespace mkbench
