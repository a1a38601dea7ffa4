// Repeats, isolation and the sweep of cache lengths, each with an engine that is
// right and with one fault at a time.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "harness/judge/isolation.h"
#include "harness/judge/repeats.h"
#include "harness/judge/sweep.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

constexpr double kNoise = 0.02;
const double kSweepLimit = limits_of(PrecisionClass::kBf16).sweep;

void go_on() {}

ReferencePrompt prompt_of(const std::string& name, std::vector<int32_t> ids) {
  ReferencePrompt prompt;
  prompt.name = name;
  prompt.ids = std::move(ids);
  return prompt;
}

const std::vector<ReferencePrompt>& prompts() {
  static const std::vector<ReferencePrompt> list = {prompt_of("a", {1, 2, 3}),
                                                    prompt_of("b", {2, 7, 7, 9, 11})};
  return list;
}

// Moves one logit by one bit where `where` holds, as a race changes a sum.
FakeBehaviour one_bit_off(std::function<bool(const At&)> where) {
  return {.at_step = [where = std::move(where)](const At& at, std::vector<float>& z, int32_t&) {
    if (where(at)) z[40] = std::nextafter(z[40], 1.0F);
  }};
}

ParityReport repeat(const FakeBehaviour& behaviour) {
  FakeEngine engine(behaviour);
  Findings findings;
  ParityReport report;
  report.repeats_sha256 = judge_repeats(engine, prompts(), kFakeVocab, go_on, findings);
  findings.conclude(report);
  return report;
}

ParityReport isolate(const FakeBehaviour& behaviour, const EngineFactory& make_second) {
  FakeEngine engine(behaviour);
  Findings findings;
  ParityReport report;
  judge_isolation(engine, prompts()[0], prompts()[1], kFakeVocab, make_second, go_on, findings);
  findings.conclude(report);
  return report;
}

SweepTruth live_truth(int steps, int longest, int32_t first = 0) {
  FakeEngine truth, head({.noise_seed = 1, .noise = kNoise});
  return live_sweep(truth, head, kFakeVocab, {first}, steps, longest, [] { return true; });
}

ParityReport sweep(const FakeBehaviour& behaviour, const SweepTruth& truth,
                   std::vector<FailedStep>* wrong = nullptr) {
  FakeEngine engine(behaviour);
  Findings findings;
  ParityReport report;
  ParityOptions options;
  options.vocab = kFakeVocab;
  SweepBounds bounds;
  if (wrong != nullptr)
    bounds.first_wrong = [=](const FailedStep& step) { wrong->push_back(step); };
  judge_sweep(engine, truth, options, bounds, findings);
  findings.conclude(report);
  return report;
}

}  // namespace

TEST_CASE("repeats: one bit of one logit in one run of many is seen, and which run") {
  const ParityReport good = repeat({});
  CHECK(good.verdict == Verdict::kPass);
  CHECK(find_check(good, Check::kRepeats)->status == CheckStatus::kPassed);
  CHECK(good.repeats_sha256.size() == 64);
  const ParityReport last = repeat(
      one_bit_off([](const At& at) { return at.run == kRepeats && at.step == kRepeatSteps - 1; }));
  CHECK(last.verdict == Verdict::kNondeterministic);
  CHECK_THAT(last.reason, ContainsText("run 20 of 20 in a row of prompt 'a'") &&
                              ContainsText("step 15: logit 40"));
  const ParityReport after =
      repeat(one_bit_off([](const At& at) { return at.run == 2 * kRepeats + 1 && at.step == 0; }));
  CHECK(after.verdict == Verdict::kNondeterministic);
  CHECK_THAT(after.reason, ContainsText("after other prompts of prompt 'a'"));
  // A step that is not decoded changes nothing.
  CHECK(repeat(one_bit_off([](const At& at) { return at.step == kRepeatSteps; })).verdict ==
        Verdict::kPass);
}

TEST_CASE("repeats: fresh processes must say the hash that this one said") {
  FakeEngine engine;
  Findings findings;
  ParityReport report = repeat({});
  const std::string own = hash_runs(engine, prompts(), kFakeVocab, findings);
  CHECK(own == report.repeats_sha256);
  judge_fresh_runs({{own, ""}, {own, ""}, {own, ""}}, report);
  CHECK(report.verdict == Verdict::kPass);
  FakeEngine other(one_bit_off([](const At& at) { return at.step == 3; }));
  ParityReport differs = report;
  judge_fresh_runs({{own, ""}, {hash_runs(other, prompts(), kFakeVocab, findings), ""}}, differs);
  CHECK(differs.verdict == Verdict::kNondeterministic);
  CHECK_THAT(differs.reason, ContainsText("fresh process 2 of 2"));
  CHECK(find_check(differs, Check::kRepeats)->status == CheckStatus::kFailed);
  judge_fresh_runs({{"", "the worker died"}}, report);
  CHECK(report.verdict == Verdict::kRuntimeError);
}

TEST_CASE("isolation: another sequence, a changed prefix, a second engine that shares state") {
  const EngineFactory second = [] { return std::make_unique<FakeEngine>(); };
  const ParityReport good = isolate({}, second);
  CHECK(good.verdict == Verdict::kPass);
  CHECK(find_check(good, Check::kIsolation)->detail.empty());
  // The runs are A, B, A, ...; the third one is influenced by the second.
  const ParityReport leak =
      isolate(one_bit_off([](const At& at) { return at.run == 3 && at.step == 2; }), second);
  CHECK(leak.verdict == Verdict::kNondeterministic);
  CHECK_THAT(leak.reason, ContainsText("prompt 'a' after 'b'"));
  const ParityReport prefix = isolate({.modified_prefix = true}, second);
  CHECK(prefix.verdict == Verdict::kIntegrity);
  CHECK_THAT(prefix.reason, ContainsText("prompt 'b': decoding changed rows of its prefix"));
  const ParityReport shared = isolate({}, [] {
    return std::make_unique<FakeEngine>(
        one_bit_off([](const At& at) { return at.run == 2 && at.step == 7; }));
  });
  CHECK(shared.verdict == Verdict::kNondeterministic);
  CHECK_THAT(shared.reason, ContainsText("'b' on a second engine") && ContainsText("step 7"));
}

TEST_CASE("isolation: a rewind leads to the same bits again, where one is offered") {
  for (const bool snapshots : {true, false}) {
    for (const int off : {-1, 0, 1, kRepeatSteps}) {
      const ParityReport p =
          isolate({.takes_snapshots = snapshots, .rewinds_off = off}, [] { return nullptr; });
      INFO(off << p.reason);
      CHECK(p.verdict == (off == 0 ? Verdict::kPass : Verdict::kNondeterministic));
      CHECK(p.reason.starts_with(off == 0 ? "" : "prompt 'b' again after rewind(): step 0: id "));
    }
  }
}

TEST_CASE("isolation: errors of other kinds are nobody's finding") {
  struct Broken : FakeEngine {
    void restore(const Snapshot&) override { throw Error(ErrorKind::kCuda, "restore"); }
  };
  const auto judge = [](Engine& engine, const EngineFactory& make_second) {
    Findings findings;
    judge_isolation(engine, prompts()[0], prompts()[1], kFakeVocab, make_second, go_on, findings);
  };
  Broken broken;
  CHECK_THROWS_WITH(judge(broken, nullptr), ContainsText("restore"));
  FakeEngine good;
  CHECK_THROWS_WITH(
      judge(good,
            []() -> std::unique_ptr<Engine> { throw Error(ErrorKind::kRuntime, "no second one"); }),
      ContainsText("no second one"));
}

TEST_CASE("isolation: a first engine that a second one disturbs is seen, not the second alone") {
  // The first engine runs a, b, a, then b's prefix, then a alone: the sixth run is beside the second.
  const ParityReport p =
      isolate(one_bit_off([](const At& at) { return at.run == 6 && at.step == 4; }),
              [] { return std::make_unique<FakeEngine>(); });
  CHECK(p.verdict == Verdict::kNondeterministic);
  CHECK_THAT(p.reason, ContainsText("prompt 'a' beside a second engine: step 4"));
}

TEST_CASE("repeats: the first prompt and the longest of at most 256 ids; bits, not values") {
  const auto names = [](const std::vector<size_t>& lengths) {
    std::vector<ReferencePrompt> all;
    for (const size_t n : lengths)
      all.push_back(prompt_of(std::to_string(n), std::vector<int32_t>(n, 1)));
    std::string chosen;
    for (const ReferencePrompt& p : prompts_to_repeat(all)) chosen += p.name + " ";
    return chosen;
  };
  CHECK(names({3, 257, 256, 9}) == "3 256 ");
  CHECK(names({3, 257, 2}) == "3 ");
  const float nan = std::nanf("");
  CHECK(first_difference({{1}, {0.0F, nan}}, {{1}, {0.0F, nan}}) == "");
  CHECK(first_difference({{1}, {0.0F, nan}}, {{1}, {-0.0F, nan}}) ==
        "step 0: logit 0 is 0 against -0");
  CHECK(first_difference({{1, 2}, {}}, {{1}, {}}) == "2 ids against 1");
  CHECK(first_difference({{1}, {1}}, {{1}, {}}) == "another number of logits");
}

TEST_CASE("isolation: a reset that keeps the position is told, and no other fault as such") {
  const auto told = [](FakeBehaviour behaviour) {
    FakeEngine fresh(std::move(behaviour)), truth;
    return kept_by_reset(fresh, truth, prompts()[1]);
  };
  CHECK(
      told({.keeps_context = true}) ==
      "reset() keeps the position: a new engine is right on prompt 'b', and after a reset it goes "
      "on behind the rows of that run");
  CHECK(told({}) == "");
  const auto wrong_in_run = [](int run) {
    return FakeBehaviour{.at_step = [run](const At& at, std::vector<float>&, int32_t& id) {
      if (at.run >= run && at.step == 3) id ^= 1;
    }};
  };
  CHECK(told(wrong_in_run(1)) == "");
  CHECK(told(wrong_in_run(2)) == "");
}

TEST_CASE("isolation: what cannot be tried is said") {
  FakeBehaviour b;
  b.takes_snapshots = false;
  const ParityReport p = isolate(
      b, []() -> std::unique_ptr<Engine> { throw Error(ErrorKind::kEnvUnfit, "no room for two"); });
  CHECK(p.verdict == Verdict::kPass);
  CHECK_THAT(find_check(p, Check::kIsolation)->detail,
             ContainsText("no snapshots") && ContainsText("no room for two"));
}

TEST_CASE("sweep: the lengths of parity.md, once each") {
  CHECK(edge_lengths(70) == std::vector<int>{15, 16, 17, 31, 32, 33, 63, 64, 65, 69, 70});
  const std::vector<int> far = edge_lengths(4096);
  for (const int length : {127, 129, 255, 257, 511, 513, 1023, 1025, 2047, 2049, 4095, 4096}) {
    CHECK(std::count(far.begin(), far.end(), length) == 1);
  }
  CHECK(edge_lengths(14) == std::vector<int>{13, 14});
  // Every edge length is decoded once, whichever prefill it follows.
  std::vector<int> covered;
  for (const auto& [length, steps] : edge_prefills(4096)) {
    for (int i = 0; i < steps; ++i) covered.push_back(length + i);
  }
  CHECK(covered == far);
}

TEST_CASE("sweep: one wrong cache length is named, on either way to it") {
  const SweepTruth truth = live_truth(100, 600);
  const FakeBehaviour good{.noise_seed = 2, .noise = kNoise};
  const ParityReport right = sweep(good, truth);
  INFO(right.reason);
  CHECK(right.verdict == Verdict::kPass);
  CHECK(*find_check(right, Check::kSweep)->value > 0.5);
  CHECK(find_check(right, Check::kSweep)->limit == kSweepLimit);
  const auto wrong_at = [&](int length, bool on_prefill) {
    FakeBehaviour b = good;
    b.at_step = [=](const At& at, std::vector<float>& z, int32_t& id) {
      if (at.position != length - 1 || (at.step == 0) != on_prefill) return;
      id = (id + 1) % kFakeVocab;
      z[static_cast<size_t>(id)] = 20;
    };
    return sweep(b, truth);
  };
  const ParityReport stepped = wrong_at(77, false);
  CHECK(stepped.verdict == Verdict::kFailToken);
  CHECK_THAT(stepped.reason, ContainsText("first 77 rows (step by step)"));
  const ParityReport prefilled = wrong_at(64, true);
  CHECK(prefilled.verdict == Verdict::kFailToken);
  CHECK_THAT(prefilled.reason, ContainsText("64 rows (a prefill of 63 rows)"));
  CHECK_THAT(wrong_at(600, true).reason + wrong_at(600, false).reason, ContainsText("600 rows"));
}

TEST_CASE("sweep: the first wrong step is told once, as it was judged") {
  const SweepTruth truth = live_truth(100, 600);
  FakeBehaviour b{.noise_seed = 2, .noise = kNoise};
  b.at_step = [](const At& at, std::vector<float>& z, int32_t& id) {
    if (at.position < 76) return;
    id = (id + 1) % kFakeVocab;
    z[static_cast<size_t>(id)] = 20;
  };
  std::vector<FailedStep> wrong;
  sweep(b, truth, &wrong);
  REQUIRE(wrong.size() == 1);
  const FailedStep& step = wrong[0];
  CHECK((step.prompt == "step by step" && step.position == 76 && step.free_tokens == 0));
  CHECK((step.prompt_ids.size() == 1 && step.forced_ids.size() == 76));
  CHECK(step.found == (step.expected + 1) % kFakeVocab);
  CHECK((step.expected_top.size() == 5 && step.expected_top[0].id == step.expected));
  CHECK((step.found_top.size() == 5 && step.found_top[0].id == step.found));
  CHECK(step.found_top[0].logit == 20);
  CHECK(step.pairwise_d == truth.pairwise_d);
  CHECK(step.margin == truth.path.steps[76].margin);
  CHECK(*step.error_limit >= kSweepLimit * step.baseline_error_norm);
  // Without logits no error is judged.
  b.has_logits = false;
  wrong.clear();
  sweep(b, truth, &wrong);
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].found_top.empty());
  CHECK_FALSE(wrong[0].error_limit);
}

TEST_CASE("sweep: an error just under its limit passes, one just over fails") {
  const SweepTruth truth = live_truth(60, 60);
  // An error at one step only, scaled to a known ratio.
  const auto at_step_error = [&](float amplitude) {
    FakeBehaviour b;
    b.at_step = [amplitude](const At& at, std::vector<float>& z, int32_t& id) {
      if (at.position != 29) return;
      for (int i = 0; i < kFakeVocab; ++i) {
        if (i != id) z[static_cast<size_t>(i)] += (i % 2 == 0 ? amplitude : -amplitude);
      }
    };
    return sweep(b, truth);
  };
  const double unit = *find_check(at_step_error(0.01F), Check::kSweep)->value / 0.01;
  const ParityReport under = at_step_error(static_cast<float>(0.993 * kSweepLimit / unit));
  const ParityReport over = at_step_error(static_cast<float>(1.007 * kSweepLimit / unit));
  CHECK(under.verdict == Verdict::kPass);
  CHECK(over.verdict == Verdict::kFailToken);
  CHECK_THAT(over.reason, ContainsText("30 rows") &&
                              ContainsText(fmt::format("wanted at most {:g}", kSweepLimit)));
}

TEST_CASE("sweep: an error counts against the larger of the baseline's own there and its median") {
  SweepTruth truth = live_truth(60, 60);
  const auto value_with = [&](double own) {
    for (ReferenceStep& s : truth.path.steps) s.baseline_error_norm = s.position == 29 ? own : 1;
    const ParityReport p = sweep({.at_step =
                                      [](const At& at, std::vector<float>& z, int32_t&) {
                                        if (at.position == 29) z[40] -= 0.5F;
                                      }},
                                 truth);
    return *find_check(p, Check::kSweep)->value;
  };
  CHECK(value_with(1) > 0.1);
  CHECK(value_with(0.1) == Approx(value_with(1)));
  CHECK(value_with(4) == Approx(value_with(1) / 4));
}

TEST_CASE(
    "sweep: an id that lies as far as D below the truth's passes, and one further off fails") {
  SweepTruth truth = live_truth(60, 60, 1);  // it meets near ties
  const FakeBehaviour turns_ties{.tie_error = 2 * FakeEngine::kTieGap};
  truth.pairwise_d = FakeEngine::kTieGap;
  CHECK(sweep(turns_ties, truth).verdict == Verdict::kPass);
  truth.pairwise_d = 0.99 * FakeEngine::kTieGap;
  CHECK(sweep(turns_ties, truth).verdict == Verdict::kFailToken);
}

TEST_CASE("sweep: the right token with logits that are not finite is wrong") {
  const ParityReport p = sweep({.at_step =
                                    [](const At& at, std::vector<float>& z, int32_t& id) {
                                      if (at.position == 29)
                                        z[static_cast<size_t>(id + 1) % kFakeVocab] = std::nanf("");
                                    }},
                               live_truth(60, 60));
  CHECK(p.verdict == Verdict::kFailToken);
  CHECK_THAT(p.reason, ContainsText("first 30 rows (step by step): logits are not finite"));
}

TEST_CASE("sweep: a prefill that ends where the path ends has a truth of its own") {
  for (const int steps : {14, 15, 16, 17, 18}) {  // edges lie at 15, 16 and 17
    for (const ReferencePrompt& jump : live_truth(steps, 20).jumps) {
      INFO(steps << " steps, " << jump.ids.size() << " ids");
      std::vector<int32_t> context = jump.ids;
      for (const ReferenceStep& step : jump.steps) {
        CHECK(step.position == static_cast<int>(context.size()) - 1);
        const std::vector<float> z = FakeEngine::true_logits(context);
        CHECK(step.token == std::max_element(z.begin(), z.end()) - z.begin());
        context.push_back(step.token);
      }
    }
  }
}

TEST_CASE("sweep: the closed form's lengths begin where it holds") {
  const SweepTruth truth = closed_form_sweep("short", kQwen3_0_6B.vocab, 30, 200);
  CHECK(truth.path.ids.size() == 12);
  CHECK(truth.path.steps.size() == 30);
  CHECK_FALSE(truth.has_logits);
  std::vector<int32_t> ids = truth.path.ids;
  for (const ReferenceStep& s : truth.path.steps) ids.push_back(s.token);
  CHECK(synthetic_continuation(truth.path.ids, "short", 30) ==
        std::vector<int32_t>(ids.begin() + 12, ids.end()));
  for (const ReferencePrompt& jump : truth.jumps) {
    CHECK(jump.ids.size() >= 12);
    CHECK(jump.steps.front().token == synthetic_continuation(jump.ids, "short", 1)[0]);
  }
  CHECK(truth.jumps.back().ids.size() == 200);
}

TEST_CASE("sweep: on the closed form, without logits and margins, only the token itself passes") {
  const SweepTruth truth = closed_form_sweep("short", kQwen3_0_6B.vocab, 30, 80);
  const std::vector<int32_t>& start = truth.path.ids;
  std::vector<int32_t> ids = start;
  for (const int32_t id : synthetic_continuation(start, "short", 80)) ids.push_back(id);
  const auto with_wrong = [&](int position) {
    FakeBehaviour b;
    b.has_logits = false;
    b.at_step = [&ids, position](const At& at, std::vector<float>&, int32_t& id) {
      id = ids[static_cast<size_t>(at.position) + 1] ^ (at.position == position ? 1 : 0);
    };
    return sweep(b, truth);
  };
  const ParityReport right = with_wrong(-1);
  INFO(right.reason);
  CHECK(right.verdict == Verdict::kPass);
  CHECK_FALSE(find_check(right, Check::kSweep)->value);
  const ParityReport wrong = with_wrong(20);
  CHECK(wrong.verdict == Verdict::kFailToken);
  CHECK_THAT(wrong.reason, ContainsText("first 21 rows (step by step): found "));
  CHECK(with_wrong(79).verdict == Verdict::kFailToken);  // on a prefill alone
}
