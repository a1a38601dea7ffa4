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

#include "harness/judge/ratchet.h"
#include "harness/judge/ratios.h"
#include "harness/report/parity_report.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

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

// One report of several references: counts add up, the worst verdict and the largest ratio stand.
ParityReport join_parity(const std::vector<ParityReport>& reports);

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

// Throws Error(kInvalidReference) naming both hashes where the reference was made from other
// weights. A reference without a hash (published ids) passes with all weights.
void check_reference_weights(const GreedyReference& reference, const ModelWeights& weights);

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
