// What judging the parity of one engine found: verdict, counts, checks and the parity table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/checks.h"
#include "harness/report/verdict.h"

namespace mkbench {

// EXACT: the reference's token. TIE: another one, at a step that is a near tie and within tau of
// the top. DRIFT: a step after a fork that could not be re-anchored (token-only references). WRONG:
// anything else.
enum class StepVerdict { kExact, kTie, kDrift, kWrong };
std::string_view step_verdict_name(StepVerdict v);

// One row of the parity table: pos / ref_id / mk_id / ref_text / mk_text / match.
struct ParityRow {
  std::string prompt;
  std::string set;  // "strict", "near-tie", "closed-form"
  int position = 0;
  int32_t reference_id = -1, engine_id = -1;
  std::string reference_text, engine_text;
  StepVerdict verdict = StepVerdict::kExact;
  double margin = 0;  // of T; 0 in token-only references
};

struct ParityReport {
  Verdict verdict = Verdict::kPass;
  std::string reason;     // empty when passed; else one line: prompt, position, found, wanted
  std::string reference;  // file name, or "live", or "closed form"
  std::string reference_sha256;  // empty when live
  std::string judged_in;  // the earlier case of this run that judged it; empty: this case did
  int prompts = 0;
  int steps = 0;                             // all judged steps
  int strict_steps = 0, strict_matched = 0;  // "N of N", free-running
  int decided_steps = 0;
  int exact = 0, ties = 0, drifts = 0, wrong = 0;
  int flips = 0;  // steps whose token differs from T's, teacher-forced
  int flips_allowed =
      0;  // F_B' + 3 sqrt(max(1, F_B')); 0 in token-only references, which have no cap
  int self_inconsistent =
      0;               // emitted token is not the lowest-index argmax of the engine's own logits
  int non_finite = 0;  // NaN or Inf logits
  std::optional<double> r_rms;  // absent without logits
  // 0 where r_rms is reported but not judged (a baseline with rounded logits)
  double r_rms_limit = 0;
  std::optional<int> first_divergence;  // index into rows
  // What ran and what was ruled out, each check once, in the order of check_table(). A failed one
  // stands behind every failing verdict.
  std::vector<CheckResult> checks;
  // sha256 of the ids and logits of the repeated prompts; empty where none were repeated.
  std::string repeats_sha256;
  // Where localising starts: the first wrong or not finite step, else the one farthest from T. Not
  // in report.json.
  std::string suspect_prompt;
  int suspect_position = -1;
  std::string localised;  // where a failure begins, as far as the engine can tell; else empty
  std::vector<ParityRow> rows;
};

// The result of one check; null where the report has none of it.
const CheckResult* find_check(const ParityReport& report, Check check);

}  // namespace mkbench
