// What judging the parity of one engine found: verdict, counts, checks and the parity table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/checks.h"
#include "harness/report/diagnosis.h"
#include "harness/report/failed_step.h"
#include "harness/report/verdict.h"

namespace mkbench {

// One row of the parity table: pos / ref_id / mk_id / ref_text / mk_text / match.
struct ParityRow {
  std::string prompt;
  std::string set;  // "strict", "near-tie", "closed-form"
  int position = 0;
  int32_t reference_id = -1, engine_id = -1;
  std::string reference_text, engine_text;
  StepVerdict verdict = StepVerdict::kExact;
  double margin = 0;  // the truth's; 0 in token-only references
};

constexpr std::string_view struct_name(Tag<ParityRow>) { return "parity_row"; }
template <typename V>
void describe_fields(V& v, Tag<ParityRow>) {
  v.field("prompt", &ParityRow::prompt, "name of the prompt");
  v.field("set", &ParityRow::set, "strict, near-tie or closed-form");
  v.field("pos", &ParityRow::position, "KV rows before the step");
  v.field("ref_id", &ParityRow::reference_id, "the reference's token");
  v.field("mk_id", &ParityRow::engine_id, "the engine's token");
  v.field("ref_text", &ParityRow::reference_text, "the reference's token as text");
  v.field("mk_text", &ParityRow::engine_text, "the engine's token as text");
  v.field("match", &ParityRow::verdict, "verdict of the step");
  v.field("margin", &ParityRow::margin,
          "the truth's top-1 minus top-2 logit; 0 in token-only references");
}

// What is known of a failure.
struct FailureDetails {
  Diagnosis diagnosis{};                     // its text is empty if no bug was looked for
  std::vector<ErrorAt> error_by_position{};  // around the step where it begins
  std::string localised{};  // where it begins, or why that is not known; else empty
  // What the failing steps have in common, one line each (harness/judge/facts.h).
  std::vector<std::string> facts{};
  std::optional<FailedStep> failed_step{};  // the step where it begins, ready to be repeated
};

struct ParityReport : FailureDetails {
  Verdict verdict = Verdict::kPass;
  std::string reason;     // empty when passed; else one line: prompt, position, found, wanted
  std::string reference;  // file name, or "live", or "closed form"
  std::string reference_sha256;  // empty when live
  // a precision_class_name() (references/engine.h): chooses the limits of the ratios
  std::string precision;
  std::string judged_in;  // earlier case of this run that judged the engine; empty: this case did
  int prompts = 0;
  int steps = 0;                             // all judged steps
  int strict_steps = 0, strict_matched = 0;  // "N of N", free-running
  int decided_steps = 0;
  int exact = 0, ties = 0, drifts = 0, wrong = 0;
  int flips = 0;  // steps whose token differs from the truth's, teacher-forced
  // Most flips that pass, by the near ties and the baseline's errors there (harness/judge/flips.h);
  // 0 if every step is decided, and in token-only references, which have no cap.
  int flips_allowed = 0;
  // Emitted tokens that are not the lowest-index argmax of the engine's own logits.
  int self_inconsistent = 0;
  int non_finite = 0;           // NaN or Inf logits
  std::optional<double> r_rms;  // absent without logits
  // 0 if r_rms is reported but not judged (a baseline with rounded logits)
  double r_rms_limit = 0;
  std::optional<int> first_divergence;  // index into rows
  // What ran and what was ruled out, each check once, in the order of kChecks. Every failing
  // verdict has a failed check.
  std::vector<CheckResult> checks;
  // sha256 of the ids and logits of every teacher-forced step: equal on all cards of a kind. Empty
  // if steps are missing, and for an engine without logits or without repeatable bits.
  std::string logits_sha256;
  // sha256 of the ids and logits of the repeated prompts; empty if none were repeated.
  std::string repeats_sha256;
  // Every cache length up to this one was judged; 0 if none was swept.
  int lengths_judged = 0;
  int lengths_known = 0;  // positions that the model supports
  std::string coverage;   // cache lengths judged, and how; empty if none was swept
  // Where localising starts: the first wrong or not finite step, else the one farthest from the
  // truth. Not in report.json.
  std::string suspect_prompt;
  int suspect_position = -1;
  bool suspect_is_free = false;  // its id came from the run without logits
  // A judged prompt and the engine's continuation of it; empty if the reference has no texts.
  std::string text_prompt, text;
  std::vector<ParityRow> rows;
};

constexpr std::string_view struct_name(Tag<ParityReport>) { return "parity"; }
template <typename V>
void describe_fields(V& v, Tag<ParityReport>) {
  using P = ParityReport;
  v.field("verdict", &P::verdict, "verdict of parity alone");
  v.field("reason", &P::reason, "why parity did not pass, in one line; empty when passed");
  v.field("reference", &P::reference, "reference file, 'live' or 'closed form'");
  v.field("reference_sha256", &P::reference_sha256, "sha256 of the file; empty when live");
  v.field("precision", &P::precision,
          "class that chooses the limits of the ratios: bf16, fp32-accumulate, fp16 or lossy");
  v.field("judged_in", &P::judged_in,
          "earlier case of this run that judged the engine; empty when this case did");
  v.field("prompts", &P::prompts, "prompts judged");
  v.field("steps", &P::steps, "steps judged");
  v.field("strict_steps", &P::strict_steps, "free-running steps of the strict set");
  v.field("strict_matched", &P::strict_matched,
          "steps among strict_steps whose token is the reference's");
  v.field("decided_steps", &P::decided_steps, "steps with a margin over tau");
  v.field("exact", &P::exact, "rows that are EXACT");
  v.field("ties", &P::ties, "rows that are TIE");
  v.field("drifts", &P::drifts, "rows that are DRIFT");
  v.field("wrong", &P::wrong, "rows that are WRONG");
  v.field("flips", &P::flips, "teacher-forced steps whose token is not the truth's");
  v.field("flips_allowed", &P::flips_allowed, "most flips that pass");
  v.field("self_inconsistent", &P::self_inconsistent,
          "tokens that are not the lowest-index argmax of the engine's own logits");
  v.field("non_finite", &P::non_finite, "logits that are NaN or Inf");
  v.field("r_rms", &P::r_rms,
          "logit error over the baseline's, root mean square; null without logits");
  v.field("r_rms_limit", &P::r_rms_limit, "largest ratio that passes; 0 where it is not judged");
  v.field("first_divergence", &P::first_divergence, "index of the first row that differs");
  v.field("checks", &P::checks, "every check that ran or was ruled out, each once");
  v.field("logits_sha256", &P::logits_sha256,
          "sha256 of ids and logits of all teacher-forced steps, the same on every card of a kind; "
          "empty without logits, without repeatable bits, or where steps are missing");
  v.field("repeats_sha256", &P::repeats_sha256,
          "sha256 of ids and logits of the repeated prompts; empty where none were repeated");
  v.field("lengths_judged", &P::lengths_judged,
          "longest cache length up to which every one was judged; 0 where none was swept");
  v.field("lengths_known", &P::lengths_known, "positions that the model supports");
  v.field("coverage", &P::coverage, "cache lengths judged, and how; empty where none was swept");
  v.field("localised", &P::localised,
          "where a failure begins (layer, KV row, lag), or why that is unknown; empty if no step "
          "shows one");
  v.field("diagnosis", &P::diagnosis, "known bug that explains the failure");
  v.field("error_by_position", &P::error_by_position,
          "2-norm of the centred logits less the truth's at every step with finite logits of the "
          "prompt where a failure begins, or at the last steps up to a swept or timed one; empty "
          "if nothing failed or no logits are shown");
  v.field("facts", &P::facts,
          "what the failing steps have in common, one line each; empty if nothing is known");
  v.field("failed_step", &P::failed_step,
          "the step at which the failure shows, as mkbench parity --only repeats it; null if none "
          "does");
  v.field("text_prompt", &P::text_prompt,
          "a judged prompt as text; empty where the reference has no texts");
  v.field("text", &P::text, "the engine's tokens after text_prompt, as text");
  v.field("rows", &P::rows, "the parity table");
}

// The result of one check; null if the report does not hold it.
const CheckResult* find_check(const ParityReport& report, Check check);

}  // namespace mkbench
