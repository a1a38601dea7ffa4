// The time budget of judging one engine: what is planned, what is left out, and what an engine that
// ends early has proven.
#include <memory>

#include "harness/judge/isolation.h"
#include "harness/judge/repeats.h"
#include "harness/judge/sweep.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

// An engine of a made-up time: seconds of a decoded token and of a prefilled row, each with a slope
// over the rows before it.
struct TimedFake : FakeEngine {
  struct Times {
    double decode = 0, prefill = 0, slope = 0;
  };
  TimedFake(double& seconds, Times of_calls, FakeBehaviour behaviour = {})
      : FakeEngine(std::move(behaviour)), clock(seconds), times(of_calls) {}
  EngineCapabilities capabilities() const override {
    EngineCapabilities can = FakeEngine::capabilities();
    can.max_context = 40960;
    return can;
  }
  void prefill(std::span<const int32_t> ids) override {
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      clock += times.prefill + times.slope * static_cast<double>(i);
    FakeEngine::prefill(ids);
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits) override {
    for (int t = 0; t < n; ++t) clock += times.decode + times.slope * (position() + t);
    if (clock > ends_at) throw Error(ErrorKind::kHang, "it stands still");
    longest_call = std::max(longest_call, n);
    return FakeEngine::decode(n, forced, logits);
  }
  double& clock;
  Times times;
  double ends_at = 1e9;
  int longest_call = 0;
};

SweepTruth truth_of(int steps, int longest) {
  FakeEngine truth, head({.noise_seed = 1, .noise = 0.02});
  return live_sweep(truth, head, kFakeVocab, {0}, steps, longest, [] { return true; });
}

struct Swept {
  SweepCoverage coverage;
  ParityReport report;
  std::vector<double> predicted;  // of the whole walk, at each call
  int longest_call = 0;
  double seconds = 0;
};

Swept sweep(TimedFake::Times times, double budget_s, const SweepTruth& truth, int needed,
            const FakeBehaviour& behaviour = {.noise_seed = 2, .noise = 0.02}) {
  double clock = 100;
  TimedFake engine(clock, times, behaviour);
  TimeBudget budget(budget_s, [&] { return clock; });
  EnginePace pace = measure_pace(engine, {0, 1, 2}, kFakeVocab, budget);
  ParityOptions options;
  options.vocab = kFakeVocab;
  Findings findings;
  Swept swept;
  engine.longest_call = 0;
  swept.coverage = judge_sweep(
      engine, truth, options,
      {.budget = &budget,
       .pace = &pace,
       .needed = needed,
       .walked = [&](int, int total) { swept.predicted.push_back(pace.decode.between(1, total)); }},
      findings);
  swept.longest_call = engine.longest_call;
  swept.seconds = clock - 100;
  findings.conclude(swept.report);
  return swept;
}

ReferencePrompt prompt_of(std::vector<int32_t> ids) {
  ReferencePrompt prompt;
  prompt.name = "p";
  prompt.ids = std::move(ids);
  return prompt;
}

}  // namespace

TEST_CASE("time budget: what runs outside of it does not count, also where it throws") {
  double clock = 5;
  TimeBudget budget(10, [&] { return clock; });
  clock += 4;
  CHECK(budget.left() == Approx(6));
  budget.outside([&] { clock += 100; });
  CHECK(budget.left() == Approx(6));
  CHECK_THROWS_AS(budget.outside([&] {
    clock += 50;
    throw Error(ErrorKind::kHang, "no");
  }),
                  Error);
  CHECK(budget.left() == Approx(6));
  CHECK_NOTHROW(budget.check());
  clock += 6;
  CHECK_THROWS_AS(budget.check(), BudgetEnded);
}

TEST_CASE("pace: a line through the latest measurement and one at half its rows, never falling") {
  Pace pace;
  CHECK_FALSE(pace.known());
  CHECK(pace.at(1000) == 0);
  pace.learn(100, 2);
  CHECK(pace.at(5000) == 2);
  pace.learn(190, 50);  // too near to give a slope
  CHECK(pace.at(5000) == 50);
  pace.learn(300, 4);
  CHECK(pace.at(300) == Approx(4));
  CHECK(pace.at(500) == Approx(6));
  CHECK(pace.between(301, 500) == Approx(200 * (4.01 + 6) / 2));
  CHECK(pace.between(5, 4) == 0);
  pace.learn(1000, 1);
  CHECK(pace.at(9000) == 1);
}

TEST_CASE("sweep: with time for all, every length is walked and every jump is made") {
  const SweepTruth truth = truth_of(300, 600);
  const Swept all = sweep({.decode = 1e-3, .prefill = 1e-5}, 240, truth, 300);
  CHECK(all.report.verdict == Verdict::kPass);
  CHECK((all.coverage.first == 1 && all.coverage.last == 300));
  CHECK(all.coverage.prefills.size() == truth.jumps.size());
  CHECK(all.coverage.left_out.empty());
  CHECK(all.longest_call == 64);
  CHECK(coverage_text(all.coverage) == "walked 300; prefills of 14, 15, 16, ..., 598 rows");
}

TEST_CASE("sweep: jumps that are predicted not to fit are left out, the walk comes first") {
  const SweepTruth truth = truth_of(300, 600);
  // The walk takes 3 s. A prefill token by token takes its rows x 10 ms: 5.1 s for 511 rows.
  const Swept some = sweep({.decode = 0.01, .prefill = 0.01}, 20, truth, 300);
  CHECK(some.report.verdict == Verdict::kPass);
  CHECK(some.coverage.last == 300);
  CHECK(some.coverage.left_out.back() == 598);
  CHECK(some.coverage.prefills.front() == 14);
  CHECK_THAT(coverage_text(some.coverage), ContainsText("left out for their time: prefills of "));
}

TEST_CASE("sweep: a jump fits into the time left and into a quarter of the budget") {
  double clock = 0;
  const TimeBudget budget(40, [&] { return clock; });
  EnginePace pace;
  pace.prefill.learn(100, 0.09);
  pace.decode.learn(100, 1);
  CHECK(pace.jump(100, 1) == Approx(10));
  CHECK(jump_fits(budget, pace, 99, 1));
  CHECK_FALSE(jump_fits(budget, pace, 101, 1));
  clock = 30.5;
  CHECK_FALSE(jump_fits(budget, pace, 99, 1));
  CHECK(jump_fits(budget, pace, 80, 1));
}

TEST_CASE("sweep: the walk ends with the budget, by no more than a step") {
  const SweepTruth truth = truth_of(300, 600);
  const Swept early = sweep({.decode = 0.1, .prefill = 0}, 12, truth, 300);
  // measure_pace() takes 1.6 s; 10.4 s are left.
  CHECK((early.coverage.last >= 100 && early.coverage.last <= 105));
  CHECK(early.coverage.left_out.size() == truth.jumps.size());
  CHECK(early.report.verdict == Verdict::kPass);  // whoever needs more says so
}

TEST_CASE("sweep: beyond the needed lengths the walk has an eighth of the budget") {
  const Swept beyond = sweep({.decode = 0.01}, 16, truth_of(600, 600), 100);
  CHECK((beyond.coverage.last >= 298 && beyond.coverage.last <= 302));
}

TEST_CASE("sweep: the prediction follows the slope of the pace as the walk goes") {
  const double slope = 1e-4;
  const Swept walked =
      sweep({.decode = 0.001, .prefill = 0.001, .slope = slope}, 240, truth_of(600, 600), 600);
  const double real = 600 * 0.001 + slope * 600 * 600 / 2;
  CHECK(walked.predicted.back() == Approx(real).epsilon(0.05));
  CHECK(walked.predicted[2] == Approx(real).epsilon(0.2));
}

TEST_CASE("sweep: the default budget holds an engine that prefills token by token") {
  // 1.2 ms a token at depth 0, 7 ms at 2,000.
  const TimedFake::Times times{.decode = 1.2e-3, .prefill = 1.2e-3, .slope = 2.9e-6};
  const SweepTruth truth = closed_form_sweep("short", kQwen3_0_6B.vocab, 10240, 10240);
  std::vector<int32_t> ids = truth.path.ids;
  for (const ReferenceStep& step : truth.path.steps) ids.push_back(step.token);
  FakeBehaviour right;
  right.has_logits = false;
  right.at_step = [&ids](const At& at, std::vector<float>&, int32_t& id) {
    id = ids[static_cast<size_t>(at.position) + 1];
  };
  const Swept swept = sweep(times, 240, truth, kNeededLengths, right);
  INFO(coverage_text(swept.coverage) << ", " << swept.seconds << " s");
  CHECK(swept.report.verdict == Verdict::kPass);
  CHECK(swept.coverage.last > 4096);
  CHECK(swept.coverage.prefills.back() == 4094);
  CHECK(swept.coverage.left_out.front() == 8190);
  CHECK((swept.seconds > 80 && swept.seconds < 120));
}

TEST_CASE("sweep: a wrong length stands though the engine hangs at a later one") {
  double clock = 0;
  TimedFake engine(clock, {.decode = 1},
                   {.at_step = [](const At& at, std::vector<float>&, int32_t& id) {
                     if (at.position == 20) id = (id + 1) % kFakeVocab;
                   }});
  engine.ends_at = 150;
  ParityOptions options;
  options.vocab = kFakeVocab;
  Findings findings;
  CHECK_THROWS_WITH(judge_sweep(engine, truth_of(300, 300), options, {}, findings),
                    ContainsText("it stands still"));
  ParityReport report;
  findings.conclude(report);
  CHECK(report.verdict == Verdict::kFailToken);
  CHECK_THAT(report.reason, ContainsText("1 of 128 cache lengths wrong, first 21 rows"));
}

TEST_CASE("pace: a slow engine is measured by its short prefill alone") {
  double clock = 0;
  TimedFake engine(clock, {.decode = 1, .prefill = 1});
  const TimeBudget budget(240, [&] { return clock; });
  const EnginePace pace = measure_pace(engine, {0, 1}, kFakeVocab, budget);
  CHECK(clock == Approx(48));
  CHECK(pace.jump(32, 16) == Approx(48));
}

TEST_CASE("repeats and isolation: a budget that ends is INCOMPLETE, and says how far they came") {
  double clock = 0;
  const std::vector<ReferencePrompt> prompts = {prompt_of({1, 2, 3}), prompt_of({2, 7, 7, 9})};
  const auto judge = [&](FakeBehaviour behaviour, double seconds) {
    clock = 0;
    TimedFake engine(clock, {.decode = 1}, std::move(behaviour));
    const TimeBudget budget(seconds, [&] { return clock; });
    const std::function<void()> stop = [&] { budget.check(); };
    Findings findings;
    ParityReport report;
    report.repeats_sha256 = judge_repeats(engine, prompts, kFakeVocab, stop, findings);
    judge_isolation(engine, prompts[0], prompts[1], kFakeVocab, nullptr, stop, findings);
    findings.conclude(report);
    return report;
  };
  CHECK(judge({}, 1e6).verdict == Verdict::kPass);
  const ParityReport early = judge({}, 33);  // a run takes 16 s
  CHECK(early.verdict == Verdict::kIncomplete);
  CHECK(early.reason == "3 of 42 repeats; isolation of sequences not finished");
  CHECK(early.repeats_sha256.empty());
  CHECK(find_check(early, Check::kRepeats)->status == CheckStatus::kNotApplicable);
  CHECK(find_check(early, Check::kRepeats)->detail == "not finished: 3 of 42 repeats");
  // What has failed before outranks it.
  const ParityReport failed = judge({.at_step =
                                         [](const At& at, std::vector<float>& z, int32_t&) {
                                           if (at.run == 2) z[40] += 0.5F;
                                         }},
                                    33);
  CHECK(failed.verdict == Verdict::kNondeterministic);
  CHECK(find_check(failed, Check::kRepeats)->status == CheckStatus::kFailed);
  CHECK_THAT(failed.reason, ContainsText("run 2 of 20") && ContainsText("not finished"));
}
