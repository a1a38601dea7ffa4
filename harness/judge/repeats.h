// Repeated input must give bit-identical ids and logits, in one process and in fresh ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/judge/findings.h"

namespace mkbench {

inline constexpr int kRepeats = 20;      // runs of each prompt in a row
inline constexpr int kFewRepeats = 3;    // the same after a decided failure
inline constexpr int kRepeatSteps = 16;  // tokens decoded in each run
inline constexpr int kFreshProcesses = 3;

// Result of a free run of a prompt.
struct RunBits {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [ids, vocab]; empty if the engine shows none
};

// A free run of `steps` steps in one decode(), with logits if the engine shows them.
RunBits run_bits(Engine& engine, const ReferencePrompt& prompt, int steps, int vocab,
                 Findings& findings);

// Compares by bits: NaN equals itself, and -0 differs from 0.
bool same_bits(float x, float y);

// The first difference in bits: "step 3: id 5 against 9", "step 3: logit 17 is 1.5 against 1.25";
// empty for equal runs.
std::string first_difference(const RunBits& found, const RunBits& wanted);

// The prompts that are repeated: the first, and the longest of at most 256 ids.
std::vector<ReferencePrompt> prompts_to_repeat(const std::vector<ReferencePrompt>& prompts);

// sha256 of the bits of one run of each prompt.
std::string hash_runs(Engine& engine, const std::vector<ReferencePrompt>& prompts, int vocab,
                      Findings& findings);

// Runs each prompt `repeats` times in a row, and once more after the other prompts. Returns the hash
// that hash_runs() gives, or "" if the time budget ended first. `stop` is called before every run
// and may throw.
std::string judge_repeats(Engine& engine, const std::vector<ReferencePrompt>& prompts, int vocab,
                          const std::function<void()>& stop, Findings& findings,
                          int repeats = kRepeats);

// Answer of a fresh process: its hash, or why it gave none.
struct FreshRun {
  std::string sha256, problem;
};

// Adds fresh processes to a report whose repeats were judged: a process that differs is
// NONDETERMINISTIC, a process that did not answer is a RUNTIME_ERROR.
void judge_fresh_runs(const std::vector<FreshRun>& runs, ParityReport& report);

}  // namespace mkbench
