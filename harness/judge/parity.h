// Is an engine right? Judges it against a reference: strict set, near-tie set, self-consistency and
// the fidelity ratios.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/ratchet.h"
#include "harness/judge/ratios.h"
#include "harness/report/parity_report.h"
#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

struct ParityOptions {
  int vocab = 0;   // width of the engine's logits; needed if engine and reference have logits
  int layers = 0;  // of the model; 0: hidden states and KV rows are not looked at
  bool every_row = false;    // looks at all KV rows, not only at those at the boundaries
  bool is_baseline = false;  // if logits_bf16 is set too, R_rms is reported, no ratio judged
  PrecisionClass precision = PrecisionClass::kBf16;
  RatioLimits limits = limits_of(PrecisionClass::kBf16);
  std::string unlimited = "the engine is of class lossy";  // why a limit is 0
  std::optional<RatchetKey> ratchet_key = {};              // absent: no ratchet for this engine
  std::optional<Ratchet> ratchet = {};                     // what is committed under that key
  // The engine rounds its logits to bf16: tau gains one bf16 step at the largest |logit|.
  bool logits_bf16 = false;
  // Only one prompt is judged, and its ratios are not: their limits hold for whole prompt sets, and
  // a few steps vary more.
  bool one_prompt = false;
  // Runs free too, without logits, as timed launches do: ids must be equal. Else the one run is
  // teacher-forced.
  bool free_runs = true;
  std::function<std::string(int32_t)> text_of = {};  // printable text of one id; may be unset
  std::function<void(const std::string& prompt, int done, int total)> on_progress = {};
};

// The part of a reference that a baseline is judged by: all near ties, and whole strict prompts
// until they hold kBaselineSteps steps. This part shows whether the baseline of this machine agrees
// with the baseline of the capture; each further step would take 20 ms on an engine that launches
// every operation.
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

}  // namespace mkbench
