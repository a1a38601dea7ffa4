// Is an engine right? Judges it against a committed (or live) HF reference: strict set, near-tie
// set, self-consistency and the fidelity ratios.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/parity/checks.h"
#include "harness/parity/ratchet.h"
#include "harness/parity/ratios.h"
#include "harness/report/verdict.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

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

// The ratchet lets R_rms grow by this factor over its committed value.
inline constexpr double kRatchetFactor = 1.10;

struct ParityOptions {
  int vocab =
      0;  // width of the engine's logits; needed unless the engine or the reference has none
  int layers = 0;            // of the model; 0: no hidden state and no KV row is looked at
  bool every_row = false;    // all KV rows are looked at, not those at the boundaries
  bool is_baseline = false;  // eager is judged by tokens and by B' ratios of its own
  RatioLimits limits = {};
  std::optional<RatchetKey> ratchet_key = {};  // absent: no ratchet for this engine
  std::optional<double> ratchet = {};          // R_rms that is committed under that key
  bool logits_bf16 =
      false;  // the engine rounds its logits to bf16: tau gains one bf16 step at max|z|
  bool repeat_without_logits = true;  // the same ids are wanted with and without logits_out
  std::function<std::string(int32_t)> text_of = {};  // printable text of one id; may be empty
  std::function<void(const std::string& prompt, int done, int total)> on_progress = {};
};

// As much of a reference as a baseline is held to: all near ties, and whole strict prompts until
// they hold kBaselineSteps steps. That this machine's baseline agrees with the capture's shows
// there; every further step of an engine that launches per operation would cost 20 ms.
GreedyReference baseline_part(const GreedyReference& reference);
inline constexpr int kBaselineSteps = 384;

// Runs the engine over all prompts of the reference. Engine errors (Error) pass through to the
// caller.
ParityReport judge_parity(Engine& engine, const GreedyReference& reference,
                          const ParityOptions& options);

// Token receipts of a timed sample: emitted ids against the expected ones, all of them.
struct ReceiptCheck {
  int checked = 0, wrong = 0;
  std::optional<int> first_wrong;  // index
  bool ok() const { return wrong == 0 && checked > 0; }
};
ReceiptCheck check_receipts(std::span<const int32_t> emitted, std::span<const int32_t> expected);

// Token-only references of one model as one: continuations of the same prompt ids become
// alternatives of each other. Throws Error(kInvalidReference) for none, for references with logits,
// and for different weights.
GreedyReference merge_token_only(const std::vector<GreedyReference>& references);

// Throws Error(kInvalidReference) naming prompt and position where the tokens of the reference's
// strict set are not the closed form of the analytic checkpoint `lagset`, or where a prompt is too
// short for it.
void check_closed_form(const GreedyReference& reference, std::string_view lagset);

// T's own path of `steps` steps behind `ids`, with the errors of B' on it; no limit on D.
ReferencePrompt capture_path(Engine& truth, Engine& head_fp32, int vocab, const std::string& name,
                             const std::vector<int32_t>& ids, int steps);
// Seed and number of the sketches that a captured path holds.
inline constexpr uint64_t kLiveSketchSeed = 0x6d6b62656e636831;
inline constexpr int kLiveProjections = 32;

// A reference in memory for weights without a committed one: T is `truth` (fp32), B' `head_fp32`, B
// `baseline`, teacher-forced on T's path. Throws Error(kInvalidReference) when D > 0.5.
GreedyReference capture_live(Engine& truth, Engine& baseline, Engine& head_fp32, int vocab,
                             const std::vector<std::vector<int32_t>>& prompts, int steps);

}  // namespace mkbench
