// What the judges of parity share: failures found so far, decodes that prove they ran, and the
// rules for one token.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/judge/parity.h"

namespace mkbench {

// What the checks of one engine found, in the order found; one verdict and one line come of it.
class Findings {
 public:
  // The check ran. It passes unless something fails it.
  void ran(Check check) { result_of(check); }
  // The check is a number; the largest one stands. Not judged by this: fail() does.
  void measured(Check check, double value, std::optional<double> limit);
  // What a passed check covered, or was measured against; ends as its detail.
  void note(Check check, std::string detail);
  // The check cannot run here. A check that ran elsewhere (another reference) keeps its result.
  void rule_out(Check check, std::string why);
  void fail(Check check, Verdict verdict, std::string reason);
  bool failed() const { return !failures_.empty(); }
  bool failed(Check check) const;

  // Adds all of it to a report, which may hold results already. The most telling failure names the
  // verdict: a broken run explains bad logits, NaN explains wrong ids, a broken argmax explains
  // wrong tokens. The line holds all of them, the telling one first.
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
  std::map<Check, int> untold_;    // how many more there were
};

// Adds a result to a list that is in the order of check_table(): of one check, the worse status
// and the larger value stand, with both details where the statuses are equal.
void merge_check(std::vector<CheckResult>& checks, const CheckResult& result);

// Most steps that one call of decode() takes with logits: bounds the buffer to 64 x vocab floats.
inline constexpr int kMaxLogitSteps = 64;

// Empties the engine, fills whatever it could reuse with NaN / -1, and runs the prompt on the
// engine's own prefill.
void start_prompt(Engine& engine, const ReferencePrompt& prompt);

// decode() with proof that it ran: the launch counter must move (by one where a decode is one
// launch), and n ids come back; missing ones fail the check and read as -1.
std::vector<int32_t> checked_decode(Engine& engine, int n, const int32_t* forced, float* logits,
                                    const std::string& prompt, Findings& findings);

// Teacher-forced steps [first, first + count) of a prompt whose steps before have run: ids, and
// logits [count, vocab] where asked for. An engine that takes no forced ids runs each step on a
// prefill of its own.
std::vector<int32_t> forced_decode(Engine& engine, const ReferencePrompt& prompt, int first,
                                   int count, float* logits, int vocab, Findings& findings);

// True where T ranks `id` within `tau` of its top; ids outside T's top 32 never are.
bool within_tau(const ReferenceStep& step, int32_t id, double tau);

// A row of the table with texts filled in; its verdict stays EXACT.
ParityRow make_row(const ReferencePrompt& prompt, int step, int32_t engine_id,
                   const ParityOptions& options);

// "prompt 'x' position 17: found 5 (' a'), wanted 9 (' b')".
std::string describe_row(const ParityRow& row);

// Counts rows by verdict and finds the first divergence.
void tally_rows(ParityReport& report);

// Judges the four ratios and the ratchet. Throws Error(kInvalidReference) where the reference's
// baseline has no error at all.
void judge_ratios(const RatioSums& sums, const GreedyReference& reference,
                  const ParityOptions& options, ParityReport& report, Findings& findings);
void rule_out_ratios(const std::string& why, Findings& findings);

// Judges published ids without logits: by tokens alone, alternatives of a prompt together.
void judge_token_only(Engine& engine, const GreedyReference& reference,
                      const ParityOptions& options, ParityReport& report, Findings& findings);

}  // namespace mkbench
