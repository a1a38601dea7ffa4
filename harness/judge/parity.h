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

struct ParityOptions {
  int vocab = 0;   // width of the engine's logits; needed where engine and reference have logits
  int layers = 0;  // of the model; 0: no hidden state and no KV row is looked at
  bool every_row = false;    // all KV rows are looked at, not only those at the boundaries
  bool is_baseline = false;  // with logits_bf16 too, ratios are reported and not judged
  PrecisionClass precision = PrecisionClass::kBf16;
  RatioLimits limits = limits_of(PrecisionClass::kBf16);
  std::optional<RatchetKey> ratchet_key = {};  // absent: no ratchet for this engine
  std::optional<Ratchet> ratchet = {};         // what is committed under that key
  // The engine rounds its logits to bf16: tau gains one bf16 step at the largest |logit|.
  bool logits_bf16 = false;
  // Only one prompt is judged. Ratios are not: their limits hold for whole prompt sets, and a few
  // steps vary more.
  bool one_prompt = false;
  bool repeat_without_logits = true;  // ids with and without logits_out must be equal
  std::function<std::string(int32_t)> text_of = {};  // printable text of one id; may be empty
  std::function<void(const std::string& prompt, int done, int total)> on_progress = {};
};

// The part of a reference that a baseline is judged by: all near ties, and whole strict prompts
// until they hold kBaselineSteps steps. This part shows whether the baseline of this machine agrees
// with the baseline of the capture; each further step would cost an engine that launches per
// operation 20 ms.
GreedyReference baseline_part(const GreedyReference& reference);
inline constexpr int kBaselineSteps = 384;

// Runs the engine over all prompts of the reference. Errors of the engine pass to the caller;
// `report` then holds what was found before. After BudgetEnded, which on_progress may throw, the
// report is INCOMPLETE or holds what has failed.
void judge_parity(Engine& engine, const GreedyReference& reference, const ParityOptions& options,
                  ParityReport& report);
ParityReport judge_parity(Engine& engine, const GreedyReference& reference,
                          const ParityOptions& options);

// Joins the reports of several references: counts add up, the worst verdict and the largest ratio
// are kept.
ParityReport join_parity(const std::vector<ParityReport>& reports);

// Token receipts of a timed sample: every emitted id against the expected one.
struct ReceiptCheck {
  int checked = 0, wrong = 0;
  std::optional<int> first_wrong;  // index
  bool ok() const { return wrong == 0 && checked > 0; }
};
ReceiptCheck check_receipts(std::span<const int32_t> emitted, std::span<const int32_t> expected);

// Joins token-only references of one model: continuations of the same prompt ids become
// alternatives of each other. Throws Error(kInvalidReference) for none, for references with logits,
// and for different weights.
GreedyReference merge_token_only(const std::vector<GreedyReference>& references);

// Throws Error(kInvalidReference) naming both hashes where the reference was made from other
// weights. A reference without a hash (published ids) passes with all weights.
void check_reference_weights(const GreedyReference& reference, const ModelWeights& weights);

// Throws Error(kInvalidReference) naming prompt and position where the tokens of the reference's
// strict set are not the closed form of the lag set in a vocabulary of `vocab` ids, or where a prompt
// is too short for it.
void check_closed_form(const GreedyReference& reference, std::string_view lagset, int vocab);
// check_closed_form() for a live reference, whose sets follow from margins: checks every prompt
// that has a closed form, whatever its set, and returns their number.
int check_live_closed_form(const GreedyReference& live, std::string_view lagset, int vocab);
// check_live_closed_form() as a line of the report: "3 of 4 prompts have ...".
std::string live_check_text(const GreedyReference& live, std::string_view lagset, int vocab);

// The truth's own greedy path of `steps` steps after `ids`, with the errors of `head_fp32` (the
// baseline with its LM head in fp32) on it; its pairwise error has no limit. `go_on` is asked
// before every kMaxLogitSteps steps; the path ends when it returns false.
ReferencePrompt capture_path(
    Engine& truth, Engine& head_fp32, int vocab, const std::string& name,
    const std::vector<int32_t>& ids, int steps,
    const std::function<bool()>& go_on = [] { return true; });
// Seed and number of projections of the sketches in a captured path; the seed is "mkbench1" in
// ASCII. A committed reference has 512. Here every step of a long walk is projected three times,
// which would take a minute with 512 and a vocabulary of 151,936.
inline constexpr uint64_t kLiveSketchSeed = 0x6d6b62656e636831;
inline constexpr int kLiveProjections = 128;

// A reference in memory for weights without a committed one: the path of `truth` (fp32), on which
// `baseline` and `head_fp32` are teacher-forced. Throws Error(kInvalidReference) when the largest
// pairwise error D is over 0.5.
GreedyReference capture_live(Engine& truth, Engine& baseline, Engine& head_fp32, int vocab,
                             const std::vector<std::vector<int32_t>>& prompts, int steps);

}  // namespace mkbench
