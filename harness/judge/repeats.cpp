#include "harness/judge/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>

#include "harness/judge/budget.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

constexpr size_t kLongestRepeated = 256;  // prompt ids: each run of a check prefills them again

void add_bits(const RunBits& bits, Sha256& hash) {
  hash.update(bits.ids.data(), bits.ids.size() * sizeof(int32_t));
  hash.update(bits.logits.data(), bits.logits.size() * sizeof(float));
}

}  // namespace

RunBits run_bits(Engine& engine, const ReferencePrompt& prompt, int steps, int vocab,
                 Findings& findings) {
  start_prompt(engine, prompt);
  RunBits bits;
  if (engine.capabilities().logits) {
    bits.logits.assign(static_cast<size_t>(steps) * static_cast<size_t>(vocab),
                       std::numeric_limits<float>::quiet_NaN());
  }
  bits.ids =
      checked_decode(engine, steps, nullptr, bits.logits.empty() ? nullptr : bits.logits.data(),
                     prompt.name, findings);
  return bits;
}

bool same_bits(float x, float y) {
  return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
}

std::string first_difference(const RunBits& found, const RunBits& wanted) {
  for (size_t t = 0; t < std::max(found.ids.size(), wanted.ids.size()); ++t) {
    if (t >= found.ids.size() || t >= wanted.ids.size())
      return fmt::format("{} ids against {}", found.ids.size(), wanted.ids.size());
    if (found.ids[t] != wanted.ids[t])
      return fmt::format("step {}: id {} against {}", t, found.ids[t], wanted.ids[t]);
  }
  if (found.logits.size() != wanted.logits.size()) return "another number of logits";
  if (found.logits.empty()) return "";
  const auto differs =
      std::mismatch(found.logits.begin(), found.logits.end(), wanted.logits.begin(), same_bits);
  if (differs.first == found.logits.end()) return "";
  const size_t vocab = found.logits.size() / found.ids.size();
  const auto at = static_cast<size_t>(differs.first - found.logits.begin());
  return fmt::format("step {}: logit {} is {:.9g} against {:.9g}", at / vocab, at % vocab,
                     found.logits[at], wanted.logits[at]);
}

std::vector<ReferencePrompt> prompts_to_repeat(const std::vector<ReferencePrompt>& prompts) {
  const ReferencePrompt* longest = &prompts.front();
  for (const ReferencePrompt& p : prompts) {
    if (p.ids.size() <= kLongestRepeated && p.ids.size() > longest->ids.size()) longest = &p;
  }
  std::vector<ReferencePrompt> chosen = {prompts.front()};
  if (longest != &prompts.front()) chosen.push_back(*longest);
  return chosen;
}

std::string hash_runs(Engine& engine, const std::vector<ReferencePrompt>& prompts, int vocab,
                      Findings& findings) {
  Sha256 hash;
  for (const ReferencePrompt& prompt : prompts) {
    add_bits(run_bits(engine, prompt, kRepeatSteps, vocab, findings), hash);
  }
  return hash.hex();
}

std::string judge_repeats(Engine& engine, const std::vector<ReferencePrompt>& prompts, int vocab,
                          const std::function<void()>& stop, Findings& findings, int repeats) {
  findings.ran(Check::kRepeats);
  int runs = 0;
  const auto run = [&](const ReferencePrompt& prompt) {
    stop();
    RunBits bits = run_bits(engine, prompt, kRepeatSteps, vocab, findings);
    ++runs;
    return bits;
  };
  const auto compare = [&](const RunBits& found, const RunBits& wanted, const std::string& which,
                           const ReferencePrompt& prompt) {
    const std::string difference = first_difference(found, wanted);
    if (difference.empty()) return true;
    findings.fail(Check::kRepeats, Verdict::kNondeterministic,
                  fmt::format("{} of prompt '{}' differs from the first: {}", which, prompt.name,
                              difference));
    return false;
  };
  std::vector<RunBits> first;
  Sha256 hash;
  try {
    for (const ReferencePrompt& prompt : prompts) {
      first.push_back(run(prompt));
      for (int i = 1; i < repeats; ++i) {
        const bool equal = compare(run(prompt), first.back(),
                                   fmt::format("run {} of {} in a row", i + 1, repeats), prompt);
        if (!equal) break;
      }
    }
    // Each prompt once more, now that the others have run.
    for (size_t p = 0; p < prompts.size(); ++p) {
      compare(run(prompts[p]), first[p], "the run after other prompts", prompts[p]);
      add_bits(first[p], hash);
    }
  } catch (const BudgetEnded&) {
    findings.unfinished(Check::kRepeats,
                        fmt::format("{} of {} repeats", runs, (repeats + 1) * std::ssize(prompts)));
    return "";
  }
  std::string note = engine.capabilities().logits ? "" : "ids alone: this engine shows no logits";
  if (repeats < kRepeats)
    note += fmt::format("{}{} runs of a prompt, not {}: decided failure before",
                        note.empty() ? "" : "; ", repeats, kRepeats);
  if (!note.empty()) findings.note(Check::kRepeats, note);
  return hash.hex();
}

void judge_fresh_runs(const std::vector<FreshRun>& runs, ParityReport& report) {
  Findings findings;
  findings.ran(Check::kRepeats);
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string which = fmt::format("fresh process {} of {}", i + 1, runs.size());
    if (!runs[i].problem.empty()) {
      findings.fail(Check::kRepeats, Verdict::kRuntimeError, which + ": " + runs[i].problem);
    } else if (runs[i].sha256 != report.repeats_sha256) {
      findings.fail(Check::kRepeats, Verdict::kNondeterministic,
                    fmt::format("{}: ids and logits have sha256 {:.12}, wanted {:.12}", which,
                                runs[i].sha256, report.repeats_sha256));
    }
  }
  findings.conclude(report);
}

}  // namespace mkbench
