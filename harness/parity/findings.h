// What the judges of parity share: failures found so far, decodes that prove they ran, and the
// rules for one token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/parity/parity.h"

namespace mkbench {

// Failures in the order found; one verdict and one line come of them.
class Findings {
 public:
  void add(Verdict verdict, std::string reason) { list_.push_back({verdict, std::move(reason)}); }
  bool empty() const { return list_.empty(); }
  // The most telling failure names the verdict: a broken run explains bad logits, NaN explains
  // wrong ids, a broken argmax explains wrong tokens. The line holds all of them, the telling one
  // first.
  void conclude(ParityReport& report) const;

 private:
  struct Finding {
    Verdict verdict;
    std::string reason;
  };
  std::vector<Finding> list_;
};

// Most steps that one call of decode() takes with logits: bounds the buffer to 64 x vocab floats.
inline constexpr int kMaxLogitSteps = 64;

// Empties the engine, fills whatever it could reuse with NaN / -1, and runs the prompt on the
// engine's own prefill.
void start_prompt(Engine& engine, const ReferencePrompt& prompt);

// decode() with proof that it ran: the launch counter must move (by one where a decode is one
// launch), and n ids come back; missing ones are a finding and read as -1.
std::vector<int32_t> checked_decode(Engine& engine, int n, const int32_t* forced, float* logits,
                                    const std::string& prompt, Findings& findings);

// Spacing of bf16 numbers at |x|: what one rounding of a logit can move it by.
double bf16_step(double x);

// True where T ranks `id` within `tau` of its top; ids outside T's top 32 never are.
bool within_tau(const ReferenceStep& step, int32_t id, double tau);

// A row of the table with texts filled in; its verdict stays EXACT.
ParityRow make_row(const ReferencePrompt& prompt, int step, int32_t engine_id,
                   const ParityOptions& options);

// "prompt 'x' position 17: found 5 (' a'), wanted 9 (' b')".
std::string describe_row(const ParityRow& row);

// Counts rows by verdict and finds the first divergence.
void tally_rows(ParityReport& report);

// Judges published ids without logits: by tokens alone, alternatives of a prompt together.
void judge_token_only(Engine& engine, const GreedyReference& reference,
                      const ParityOptions& options, ParityReport& report, Findings& findings);

}  // namespace mkbench
