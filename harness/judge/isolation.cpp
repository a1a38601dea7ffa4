#include "harness/judge/isolation.h"

#include <fmt/format.h>

#include <limits>

#include "harness/judge/budget.h"

namespace mkbench {
namespace {

constexpr int kSteps = kRepeatSteps;

class Isolation {
 public:
  Isolation(Engine& engine, int vocab, const std::function<void()>& stop, Findings& findings)
      : engine_(engine), vocab_(vocab), stop_(stop), findings_(findings) {}

  void sequences(const ReferencePrompt& a, const ReferencePrompt& b) {
    const RunBits alone = run(a);
    run(b);
    expect(run(a), alone, fmt::format("prompt '{}' after '{}'", a.name, b.name));
  }

  // Decodes the same steps again from the prompt's end, to which restore() or rewind() goes back.
  // restore() compares the checksum of the prefix's KV rows with the checksum that save() took.
  void prefix(const ReferencePrompt& a, bool restores) {
    stop_();
    start_prompt(engine_, a);
    const Snapshot start = restores ? engine_.save() : Snapshot{};
    RunBits first, again;
    append(engine_, a, first, kSteps);
    try {
      if (restores) {
        engine_.restore(start);
      } else {
        engine_.rewind(static_cast<int>(a.ids.size()) - 1);
        engine_.poison();
        engine_.set_pending(a.ids.back());
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIntegrity) throw;
      findings_.fail(Check::kIsolation, Verdict::kIntegrity,
                     fmt::format("prompt '{}': decoding changed rows of its prefix: {}", a.name,
                                 error.what()));
      return;
    }
    append(engine_, a, again, kSteps);
    expect(again, first,
           fmt::format("prompt '{}' again after {}()", a.name, restores ? "restore" : "rewind"));
  }

  // The two sequences take turns after every step, so each step is a decode of its own.
  void interleaved(Engine& other, const ReferencePrompt& a, const ReferencePrompt& b) {
    stop_();
    const RunBits a_alone = step_by_step(engine_, a), b_alone = step_by_step(other, b);
    start_prompt(engine_, a);
    start_prompt(other, b);
    RunBits a_bits, b_bits;
    for (int t = 0; t < kSteps; ++t) {
      append(engine_, a, a_bits);
      append(other, b, b_bits);
    }
    expect(a_bits, a_alone, fmt::format("prompt '{}' beside a second engine", a.name));
    expect(b_bits, b_alone, fmt::format("prompt '{}' on a second engine", b.name));
  }

 private:
  RunBits run(const ReferencePrompt& prompt) {
    stop_();
    return run_bits(engine_, prompt, kSteps, vocab_, findings_);
  }

  RunBits step_by_step(Engine& engine, const ReferencePrompt& prompt) {
    start_prompt(engine, prompt);
    RunBits bits;
    for (int t = 0; t < kSteps; ++t) append(engine, prompt, bits);
    return bits;
  }

  void append(Engine& engine, const ReferencePrompt& prompt, RunBits& bits, int steps = 1) {
    // After a missing id there is nothing to continue from.
    if (!bits.ids.empty() && bits.ids.back() < 0) return;
    const size_t before = bits.logits.size();
    if (engine.capabilities().logits) {
      bits.logits.resize(before + static_cast<size_t>(steps) * static_cast<size_t>(vocab_),
                         std::numeric_limits<float>::quiet_NaN());
    }
    float* logits = bits.logits.empty() ? nullptr : bits.logits.data() + before;
    for (const int32_t id :
         checked_decode(engine, steps, nullptr, logits, prompt.name, findings_)) {
      bits.ids.push_back(id);
    }
  }

  void expect(const RunBits& found, const RunBits& wanted, const std::string& what) {
    const std::string difference = first_difference(found, wanted);
    if (difference.empty()) return;
    findings_.fail(Check::kIsolation, Verdict::kNondeterministic,
                   fmt::format("{}: {}", what, difference));
  }

  Engine& engine_;
  const int vocab_;
  const std::function<void()>& stop_;
  Findings& findings_;
};

// Runs the parts of the check in turn. Returns what was left out and why; empty if nothing was.
std::string run_parts(Isolation& isolation, Engine& engine, const ReferencePrompt& a,
                      const ReferencePrompt& b, const EngineFactory& make_second) {
  isolation.sequences(a, b);
  std::string left_out;
  // The first one of a set may be a single id, which has no prefix.
  const ReferencePrompt& longer = a.ids.size() > b.ids.size() ? a : b;
  if (engine.capabilities().rewind) isolation.prefix(longer, false);
  if (engine.capabilities().snapshots) {
    isolation.prefix(longer, true);
  } else {
    left_out = "without the prefix's checksum: this engine takes no snapshots";
  }
  std::unique_ptr<Engine> second;
  std::string why = "no second engine is made here";
  try {
    if (make_second) second = make_second();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEnvUnfit) throw;
    why = error.what();
  }
  if (second) {
    isolation.interleaved(*second, a, b);
  } else {
    left_out += (left_out.empty() ? "" : "; ") + ("without two engines taking turns: " + why);
  }
  return left_out;
}

}  // namespace

void judge_isolation(Engine& engine, const ReferencePrompt& a, const ReferencePrompt& b, int vocab,
                     const EngineFactory& make_second, const std::function<void()>& stop,
                     Findings& findings) {
  findings.ran(Check::kIsolation);
  Isolation isolation(engine, vocab, stop, findings);
  try {
    const std::string left_out = run_parts(isolation, engine, a, b, make_second);
    if (!left_out.empty()) findings.note(Check::kIsolation, left_out);
  } catch (const BudgetEnded&) {
    findings.unfinished(Check::kIsolation, "isolation of sequences not finished");
  }
}

std::string kept_by_reset(Engine& fresh, Engine& truth, const ReferencePrompt& prompt) {
  Findings unused;
  const auto ids = [&](Engine& engine, const ReferencePrompt& p) {
    start_prompt(engine, p);
    return checked_decode(engine, kSteps, nullptr, nullptr, p.name, unused);
  };
  const std::vector<int32_t> right = ids(truth, prompt);
  if (ids(fresh, prompt) != right) return "";
  const std::vector<int32_t> again = ids(fresh, prompt);
  if (again == right) return "";
  // What an engine computes that goes on behind the rows of the first run.
  ReferencePrompt behind = prompt;
  behind.ids.insert(behind.ids.end(), right.begin(), right.end() - 1);
  behind.ids.insert(behind.ids.end(), prompt.ids.begin(), prompt.ids.end());
  if (ids(truth, behind) != again) return "";
  return fmt::format(
      "reset() keeps the position: a new engine is right on prompt '{}', and after a reset it goes "
      "on behind the rows of that run",
      prompt.name);
}

}  // namespace mkbench
