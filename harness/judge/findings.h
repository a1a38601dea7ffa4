// Shared by the judges of parity: failures found so far, decodes that prove they ran, and the rules
// for one token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/judge/parity.h"

namespace mkbench {

// What the checks of one engine found, in the order found; concluded as one verdict and one reason.
class Findings {
 public:
  // The check ran. It passes unless fail() is called for it.
  void ran(Check check) { result_of(check); }
  // Records a value of the check; the largest is kept. Only fail() makes the check fail.
  void measured(Check check, double value, std::optional<double> limit);
  // The detail of a passed check in the report: what it covered, or was measured against.
  void note(Check check, std::string detail);
  // The check cannot run here. A check that ran elsewhere (another reference) keeps its result.
  // `value`: a measurement that was made nevertheless.
  void rule_out(Check check, std::string why, std::optional<double> value = {});
  void fail(Check check, Verdict verdict, std::string reason);
  // The time budget ended before the check was complete: INCOMPLETE, unless something has failed.
  // `reached` says how far the check came: "3 of 42 runs".
  void unfinished(Check check, std::string reached);

  // Adds all results to a report, which may hold results already. The verdict is that of the
  // failure that explains most others: a broken run explains bad logits, NaN explains wrong ids, a
  // broken argmax explains wrong tokens. The reason names all failures, the explaining one first.
  void conclude(ParityReport& report) const;

 private:
  struct Failure {
    Check check;
    Verdict verdict;
    std::string reason;
  };
  CheckResult& result_of(Check check);

  std::vector<CheckResult> results_;
  std::vector<Failure> failures_;  // the first few of each check
  std::map<Check, int> untold_;    // number of further failures of each check
};

// Runs `work`, then `conclude` even if `work` throws, so that the findings so far are kept.
template <typename Work, typename Conclude>
void conclude_however_it_ends(const Work& work, const Conclude& conclude) {
  try {
    work();
  } catch (...) {
    conclude();
    throw;
  }
  conclude();
}

// Adds a result to a list that is in the order of kChecks. Two results of one check become
// one: the worse status and the larger value, with both details if the statuses are equal.
void merge_check(std::vector<CheckResult>& checks, const CheckResult& result);

// Most steps that one call of decode() takes with logits: bounds the buffer to 64 x vocab floats.
inline constexpr int kMaxLogitSteps = 64;

// Resets the engine, overwrites what it could reuse with NaN or -1, and prefills the prompt.
void start_prompt(Engine& engine, const ReferencePrompt& prompt);

// decode() with proof that it ran: the launch counter must move (by one where a decode is one
// launch) and n ids must come back. Missing ids fail the check and read as -1.
std::vector<int32_t> checked_decode(Engine& engine, int n, const int32_t* forced, float* logits,
                                    const std::string& prompt, Findings& findings);

// Teacher-forced steps [first, first + count) of a prompt whose earlier steps have run: ids, and
// logits [count, vocab] where `logits` is not null. An engine that takes no forced ids runs each
// step on a prefill of its own.
std::vector<int32_t> forced_decode(Engine& engine, const ReferencePrompt& prompt, int first,
                                   int count, float* logits, int vocab, Findings& findings);

// Gets the steps of a run from step `first` on: ids, and logits [ids, vocab] or none.
using TakeSteps = std::function<void(int first, const std::vector<int32_t>& ids,
                                     const std::vector<float>& logits)>;

// Runs steps [0, end) of a prompt from its beginning, teacher-forced, in calls that bound the logits
// buffer; one of them begins at step `shown`. `take` gets each call's steps, from `shown` on with
// logits if the engine shows them. A logit that is not written is NaN.
void forced_run(Engine& engine, const ReferencePrompt& prompt, int shown, int end, int vocab,
                Findings& findings, const TakeSteps& take);

// True if the truth's logit of `id` is within `tau` of the truth's largest logit; false for every
// id outside the truth's top 32.
bool within_tau(const ReferenceStep& step, int32_t id, double tau);

// tau of a step: an id at most this far below the truth's largest logit is a near tie.
double tau_of(std::span<const float> truth_logits, double pairwise_d, bool logits_bf16);

// A row of ParityReport::rows with its texts filled in; its verdict stays EXACT.
ParityRow make_row(const ReferencePrompt& prompt, int step, int32_t engine_id,
                   const ParityOptions& options);

// "prompt 'x' position 17: found 5 (' a'), wanted 9 (' b')".
std::string describe_row(const ParityRow& row);

// Counts rows by verdict and finds the first divergence.
void tally_rows(ParityReport& report);

// Notes whether the logits of the repeated prompts have the bits of the ratchet's entry. Other bits
// are no failure, but need a reason in that entry.
void note_bits(const std::string& repeats_sha256, const Ratchet& committed, Findings& findings);

// Judges the four ratios and the ratchet. Throws Error(kInvalidReference) if the reference's
// baseline has no error at all.
void judge_ratios(const RatioSums& sums, const GreedyReference& reference,
                  const ParityOptions& options, ParityReport& report, Findings& findings);
void rule_out_ratios(const std::string& why, Findings& findings);

// Judges tokens alone, by published ids; all continuations of a prompt are alternatives.
void judge_token_only(Engine& engine, const GreedyReference& reference,
                      const ParityOptions& options, ParityReport& report, Findings& findings);

}  // namespace mkbench
