// The parity judge against an engine that is right, and against one fault at a time.
#include <map>
#include <set>

#include "harness/judge/findings.h"
#include "harness/judge/live.h"
#include "harness/judge/parity.h"
#include "references/base/error.h"
#include "references/oracle.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

constexpr int kSteps = 70;  // more than one chunk of 64
constexpr double kBaselineNoise = 0.02;

const std::vector<std::vector<int32_t>>& prompts() {
  static const std::vector<std::vector<int32_t>> list = {{0, 5, 9}, {0, 1}, {1, 2, 3, 4}, {2}};
  return list;
}

// The truth is exact, the fp32-head baseline has small errors, the baseline has those and rounds
// its logits to bf16.
const GreedyReference& reference() {
  static const GreedyReference captured = [] {
    FakeEngine truth;
    FakeEngine baseline({.noise_seed = 1, .noise = kBaselineNoise, .round_logits = true});
    FakeEngine head_fp32({.noise_seed = 1, .noise = kBaselineNoise});
    return capture_live(truth, baseline, head_fp32, kFakeVocab, prompts(), kSteps);
  }();
  return captured;
}

ParityReport judge(const FakeBehaviour& behaviour, ParityOptions options = {}) {
  FakeEngine engine(behaviour);
  options.vocab = kFakeVocab;
  return judge_parity(engine, reference(), options);
}

// A good kernel: half of the baseline's error, from noise of its own.
FakeBehaviour good() { return {.noise_seed = 2, .noise = kBaselineNoise / 2}; }

// A near tie of the second prompt set, as (prompt, step) of the reference.
const ReferenceStep& first_near_tie(size_t prompt, int* index) {
  const auto& steps = reference().prompts[prompt].steps;
  for (size_t t = 0; t < steps.size(); ++t) {
    if (!steps[t].decided) {
      *index = static_cast<int>(t);
      return steps[t];
    }
  }
  throw std::runtime_error("no near tie in this prompt");
}

// Whether an override is called `behind` steps after a step of the third prompt, which starts with
// 1.
bool stands_at(const At& at, const ReferenceStep& step, int behind = 0) {
  return at.first_id == 1 && at.position == step.position + behind;
}

}  // namespace

TEST_CASE("live capture: sets, margins, errors and sketches are what they are defined to be") {
  const GreedyReference& r = reference();
  REQUIRE(r.prompts.size() == 4);
  CHECK(r.prompts[0].set == "strict");
  CHECK(r.prompts[1].set == "strict");
  CHECK(r.prompts[2].set == "near-tie");
  CHECK(r.prompts[3].set == "near-tie");
  // Errors of two logits differ by at most twice the amplitude.
  CHECK((r.pairwise_d > kBaselineNoise && r.pairwise_d <= 2 * kBaselineNoise));

  std::vector<int32_t> context = prompts()[2];
  for (const ReferenceStep& step : r.prompts[2].steps) {
    const std::vector<float> z = FakeEngine::true_logits(context);
    CHECK(step.position == static_cast<int>(context.size()) - 1);
    CHECK(step.token == argmax_lowest(z));
    CHECK(step.top_ids.size() == 32);
    CHECK(step.top_logits[0] == *std::max_element(z.begin(), z.end()));
    CHECK(std::is_sorted(step.top_logits.rbegin(), step.top_logits.rend()));
    CHECK(step.decided == (step.margin > 1));
    double mean = 0, squares = 0, sum = 0;
    for (const float v : z) mean += v / double{kFakeVocab};
    for (const float v : z) squares += (v - mean) * (v - mean);
    for (const float v : z) sum += std::exp(v);
    CHECK(step.mean == Approx(mean).margin(1e-9));
    CHECK(step.centred_norm == Approx(std::sqrt(squares)));
    CHECK(step.logsumexp == Approx(std::log(sum)));
    CHECK(step.sketch.size() == static_cast<size_t>(kLiveProjections));
    // Uniform errors of this amplitude over 64 ids: a norm of about noise * 8 / sqrt(3).
    CHECK(step.baseline_error_norm == Approx(kBaselineNoise * 8 / std::sqrt(3)).epsilon(0.35));
    CHECK(step.baseline_pairwise <= r.pairwise_d);
    CHECK((step.baseline_kl > 0 && step.baseline_kl < 1e-3));
    context.push_back(step.token);
  }
  int flips = 0;  // rounding to bf16 merges near ties, where the baseline leaves the truth
  for (const ReferencePrompt& p : r.prompts) {
    for (const ReferenceStep& step : p.steps) flips += step.baseline_token != step.token;
  }
  CHECK(flips > 0);
}

TEST_CASE("live capture refuses what cannot be a truth") {
  FakeEngine truth, noisy({.noise_seed = 1, .noise = 0.5});
  CHECK_THROWS_WITH(capture_live(truth, noisy, noisy, kFakeVocab, prompts(), 8),
                    ContainsText("D ") && ContainsText("wanted <= 0.5"));
  FakeEngine nan(
      {.at_step = [](const At&, std::vector<float>& z, int32_t&) { z[3] = std::nanf(""); }});
  CHECK_THROWS_WITH(capture_live(nan, noisy, noisy, kFakeVocab, prompts(), 8), ContainsText("NaN"));
  FakeEngine liar(
      {.at_step = [](const At& at, std::vector<float>&, int32_t& id) { id += at.step == 3; }});
  FakeEngine quiet({.noise_seed = 1, .noise = 0.01});
  CHECK_THROWS_WITH(capture_live(liar, quiet, quiet, kFakeVocab, prompts(), 8),
                    ContainsText("the truth emitted"));
  CHECK_THROWS_AS(capture_live(truth, quiet, quiet, kFakeVocab, {}, 8), Error);
}

TEST_CASE("a good engine passes, every step judged, on its own poisoned prefill") {
  FakeEngine engine(good());
  int last_done = 0, last_total = 0;
  ParityOptions options{.vocab = kFakeVocab};
  options.text_of = [](int32_t id) { return "<" + std::to_string(id) + ">"; };
  options.on_progress = [&](const std::string&, int done, int total) {
    CHECK(done > last_done);
    last_done = done;
    last_total = total;
  };
  const ParityReport p = judge_parity(engine, reference(), options);
  CHECK(p.verdict == Verdict::kPass);
  CHECK(p.reason.empty());
  CHECK(p.reference == "live");
  CHECK(p.prompts == 4);
  CHECK(p.steps == 4 * kSteps);
  CHECK(p.rows.size() == 4 * kSteps);
  CHECK(p.strict_steps == 2 * kSteps);
  CHECK(p.strict_matched == 2 * kSteps);
  CHECK((p.wrong == 0 && p.drifts == 0 && p.self_inconsistent == 0 && p.non_finite == 0));
  CHECK(p.exact + p.ties == p.steps);
  CHECK(p.decided_steps < p.steps);
  CHECK(p.rows[0].reference_text == "<" + std::to_string(p.rows[0].reference_id) + ">");
  CHECK((last_done == 4 * kSteps && last_total == 4 * kSteps));
  CHECK(engine.poisons == engine.resets);
  CHECK(engine.resets >= 8);                // two runs of four prompts
  CHECK(engine.longest_decode == kSteps);   // the timed launch: one decode
  CHECK(engine.longest_with_logits == 64);  // chunks bound the logits buffer
}

TEST_CASE("R_rms from sketches is the true ratio of errors") {
  // Half the amplitude: the exact ratio of two uniform errors is 0.5 up to sampling.
  const ParityReport half = judge(good());
  REQUIRE(half.r_rms);
  CHECK(*half.r_rms == Approx(0.5).epsilon(0.05));
  CHECK(half.r_rms_limit == limits_of(PrecisionClass::kBf16).rms);
  // An offset that is common to all logits is no error.
  const ParityReport shifted = judge({.at_step = [](const At&, std::vector<float>& z, int32_t&) {
    for (float& v : z) v += 3;
  }});
  REQUIRE(shifted.r_rms);
  CHECK(*shifted.r_rms < 1e-3);
  CHECK(shifted.verdict == Verdict::kPass);
}

TEST_CASE("tokens right but logits too far from the truth: FAIL_FIDELITY") {
  const ParityReport p = judge({.at_step = [](const At& at, std::vector<float>& z, int32_t& id) {
    for (int i = 0; i < kFakeVocab; ++i) {
      if (i != id)
        z[static_cast<size_t>(i)] -=
            static_cast<float>(0.05 * (1 + testing::unit(static_cast<uint64_t>(at.step * 64 + i))));
    }
  }});
  CHECK(p.verdict == Verdict::kFailFidelity);
  CHECK_THAT(p.reason, ContainsText("R_rms") && ContainsText("> 1.5"));
  CHECK(p.wrong == 0);
}

TEST_CASE("one wrong token at any step of the strict set fails, and the first is named") {
  for (int wrong_step = 0; wrong_step < kSteps; wrong_step += 3) {
    const ParityReport p =
        judge({.at_step = [wrong_step](const At& at, std::vector<float>& z, int32_t& id) {
          if (at.step != wrong_step) return;
          id = (id + 1) % kFakeVocab;
          z[static_cast<size_t>(id)] = 20;  // consistent with its own logits
        }});
    CHECK(p.verdict == Verdict::kFailToken);
    REQUIRE(p.first_divergence);
    CHECK(*p.first_divergence == wrong_step);
    CHECK(p.rows[static_cast<size_t>(wrong_step)].verdict == StepVerdict::kWrong);
    CHECK(p.strict_matched < p.strict_steps);
    const int position = static_cast<int>(prompts()[0].size()) - 1 + wrong_step;
    CHECK_THAT(p.reason, ContainsText("position " + std::to_string(position)));
    CHECK(p.self_inconsistent == 0);
  }
}

TEST_CASE("a token that is not the lowest-index argmax of own logits: FAIL_SELF") {
  // Two equal winners: the engine takes the higher index, the truth the lower.
  const ParityReport p = judge({.at_step = [](const At& at, std::vector<float>& z, int32_t& id) {
    if (at.step != 40 || id + 5 >= kFakeVocab) return;
    z[static_cast<size_t>(id) + 5] = z[static_cast<size_t>(id)];
    id += 5;
  }});
  CHECK(p.verdict == Verdict::kFailSelf);
  CHECK(p.self_inconsistent > 0);
  CHECK_THAT(p.reason, ContainsText("lowest-index argmax"));
}

TEST_CASE("NaN, Inf and logits that were never written: FAIL_FIDELITY") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const ParityReport p =
        judge({.at_step = [bad](const At& at, std::vector<float>& z, int32_t& id) {
          if (at.step == 65) z[(static_cast<size_t>(id) + 1) % kFakeVocab] = bad;
        }});
    CHECK(p.verdict == Verdict::kFailFidelity);
    CHECK(p.non_finite == 4);  // one logit in each of four prompts
    CHECK_FALSE(p.r_rms);
  }
  const ParityReport unwritten = judge({.unwritten_logits = true});
  CHECK(unwritten.verdict == Verdict::kFailFidelity);
  CHECK(unwritten.non_finite > 0);
}

TEST_CASE("other ids with logits than without: NONDETERMINISTIC") {
  // At a near tie both ids are allowed, so no other check fails.
  int step = 0;
  const ReferenceStep& tie = first_near_tie(2, &step);
  const int32_t second = tie.top_ids[1];
  const auto flips_with_logits = [&](const At& at, std::vector<float>& z, int32_t& id) {
    if (!stands_at(at, tie) || !at.with_logits) return;
    z[static_cast<size_t>(second)] = z[static_cast<size_t>(id)] + 0.001F;
    id = second;
  };
  const ParityReport p = judge({.at_step = flips_with_logits});
  CHECK(p.verdict == Verdict::kNondeterministic);
  CHECK_THAT(p.reason, ContainsText(" in a free run without logits, " + std::to_string(second) +
                                    " in a forced run with logits"));
  CHECK(find_check(p, Check::kRepeats)->status == CheckStatus::kPassed);  // free runs are equal
  const ParityOptions once{.vocab = kFakeVocab, .free_runs = false};
  CHECK(judge({.at_step = flips_with_logits}, once).verdict == Verdict::kPass);
  FakeEngine sound(good());
  const ParityReport forced = judge_parity(sound, reference(), once);
  CHECK(forced.strict_matched == 2 * kSteps);
  CHECK(find_check(forced, Check::kStrict)->status == CheckStatus::kNotApplicable);
  CHECK(sound.resets == 4);
  FakeEngine failing({.at_step = [](const At&, auto&, int32_t&) { throw std::bad_alloc(); }});
  ParityReport none;
  CHECK_THROWS_AS(judge_parity(failing, reference(), once, none), std::bad_alloc);
  CHECK(none.rows.empty());
}

TEST_CASE("equal free runs that differ are NONDETERMINISTIC before any wrong token they give") {
  // The first prompt is run six times: free, teacher-forced, then four times free again.
  for (const bool logits : {true, false}) {
    for (const int often : {0, 1, 2, 4}) {
      FakeBehaviour racing = good();
      racing.has_logits = logits;
      racing.at_step = [=](const At& at, std::vector<float>&, int32_t& id) {
        const bool equal_again = at.run >= 3 + often && at.run <= 6;
        if (at.position == 5 && (at.run == 1 || equal_again)) id = (id + 1) % kFakeVocab;
      };
      const ParityReport p = judge(racing);
      INFO(logits << often << p.reason);
      if (often == 0) {
        CHECK(p.verdict == Verdict::kFailToken);
        CHECK(find_check(p, Check::kRepeats)->status == CheckStatus::kPassed);
        continue;
      }
      CHECK(p.verdict == Verdict::kNondeterministic);
      const std::string told = "prompt '" + reference().prompts[0].name +
                               "': " + std::to_string(often) +
                               " of 5 equal free runs differ from the first, run 2 at position 5: ";
      CHECK(p.reason.starts_with(told));
      CHECK_THAT(p.reason, ContainsText(" tokens wrong, first "));
      if (!logits) CHECK_THAT(p.reason, ContainsText(" in a free run, "));
    }
  }
  // Nothing is repeated where nothing has failed, or where equal bits are not claimed.
  CHECK(find_check(judge(good()), Check::kRepeats) == nullptr);
  FakeBehaviour wrong = good();
  wrong.at_step = [](const At& at, std::vector<float>&, int32_t& id) {
    if (at.position == 5 && !at.with_logits) id = (id + 1) % kFakeVocab;
  };
  FakeEngine once(wrong);
  judge_parity(once, reference(), {.vocab = kFakeVocab});
  CHECK(once.resets == 2 * 4 + 4);  // two runs of four prompts; of the first that fails, four more
  wrong.deterministic = false;
  CHECK(find_check(judge(wrong), Check::kRepeats) == nullptr);
}

TEST_CASE("nondeterminism behind a fork is found by the bare forced run") {
  int first = 0;
  const ReferenceStep& tie = first_near_tie(2, &first);
  int later = first + 1;
  while (reference().prompts[2].steps[static_cast<size_t>(later)].decided) ++later;
  const ReferenceStep& second_tie = reference().prompts[2].steps[static_cast<size_t>(later)];
  const ParityReport p = judge({.at_step = [&](const At& at, std::vector<float>& z, int32_t& id) {
    const auto take = [&](int32_t other) {
      z[static_cast<size_t>(other)] = z[static_cast<size_t>(id)] + 0.001F;
      id = other;
    };
    if (stands_at(at, tie)) take(tie.top_ids[1]);  // forks, always
    if (stands_at(at, second_tie) && at.with_logits) take(second_tie.top_ids[1]);
  }});
  CHECK(p.verdict == Verdict::kNondeterministic);
}

TEST_CASE("a timed run that differs from the checked one where it forks: NONDETERMINISTIC") {
  int first = 0;
  const ReferenceStep& tie = first_near_tie(2, &first);
  int runs = 0;  // of the third prompt: the free one, then forced ones
  const ParityReport p = judge({.at_step = [&](const At& at, std::vector<float>& z, int32_t& id) {
    if (at.first_id == 1 && at.step == 0) ++runs;
    if (!stands_at(at, tie) || runs != 1) return;
    const int32_t other = tie.top_ids[1];
    z[static_cast<size_t>(other)] = z[static_cast<size_t>(id)] + 0.001F;
    id = other;
  }});
  CHECK(p.verdict == Verdict::kNondeterministic);
  CHECK(p.wrong == 0);
}

TEST_CASE("near ties: the other of the two is a TIE, re-anchored to the end; a third is WRONG") {
  const ParityReport p = judge({.tie_error = 2 * FakeEngine::kTieGap});
  CHECK(p.verdict == Verdict::kFailToken);  // flips every tie: more than the cap allows
  CHECK_THAT(p.reason, ContainsText("flip cap"));
  CHECK(p.wrong == 0);
  CHECK(p.ties == p.flips);
  CHECK(p.ties == p.steps - p.decided_steps);
  CHECK(p.strict_matched == p.strict_steps);

  int step = 0;
  const ReferenceStep& tie = first_near_tie(2, &step);
  const auto emit_once = [&](int32_t other) {
    return FakeBehaviour{.at_step = [&, other](const At& at, std::vector<float>& z, int32_t& id) {
      if (!stands_at(at, tie)) return;
      z[static_cast<size_t>(other)] = z[static_cast<size_t>(id)] + 0.001F;
      id = other;
    }};
  };
  const ParityReport one = judge(emit_once(tie.top_ids[1]));
  CHECK(one.verdict == Verdict::kPass);
  CHECK(one.ties >= 1);
  CHECK(one.rows[static_cast<size_t>(2 * kSteps + step)].verdict == StepVerdict::kTie);
  // After the fork every step was judged on the truth's path, so the rows are exact and not drift.
  CHECK(one.drifts == 0);
  CHECK(one.rows.size() == 4 * kSteps);

  for (const int32_t third : {tie.top_ids[2], tie.top_ids[31]}) {
    const ParityReport wrong = judge(emit_once(third));
    CHECK(wrong.verdict == Verdict::kFailToken);
    CHECK(wrong.rows[static_cast<size_t>(2 * kSteps + step)].verdict == StepVerdict::kWrong);
  }
  // An id outside the truth's top 32.
  std::set<int32_t> top(tie.top_ids.begin(), tie.top_ids.end());
  int32_t outside = 0;
  while (top.count(outside) != 0) ++outside;
  CHECK(judge(emit_once(outside)).wrong >= 1);
}

TEST_CASE("a wrong token behind a legitimate fork is still found") {
  int step = 0;
  const ReferenceStep& tie = first_near_tie(2, &step);
  REQUIRE(step + 2 < kSteps);
  const ParityReport p = judge({.at_step = [&](const At& at, std::vector<float>& z, int32_t& id) {
    int32_t other = id;
    if (stands_at(at, tie)) other = tie.top_ids[1];
    if (stands_at(at, tie, 2)) other = (id + 3) % kFakeVocab;
    if (other == id) return;
    z[static_cast<size_t>(other)] = 20;
    id = other;
  }});
  CHECK(p.verdict == Verdict::kFailToken);
  CHECK(p.rows[static_cast<size_t>(2 * kSteps + step + 2)].verdict == StepVerdict::kWrong);
}

TEST_CASE("a rounding engine's band is one bf16 step wider, an exact one's is not") {
  // Margins between D and D plus one bf16 step at 6 (0.03125) are decided for fp32 logits and near
  // ties for rounded ones.
  GreedyReference narrow = reference();
  narrow.pairwise_d = FakeEngine::kTieGap / 2;
  const FakeBehaviour rounds{.round_logits = true, .tie_error = 2 * FakeEngine::kTieGap};
  FakeEngine engine(rounds);
  ParityOptions options{.is_baseline = true, .logits_bf16 = true};
  options.vocab = kFakeVocab;
  const ParityReport as_baseline = judge_parity(engine, narrow, options);
  CHECK(as_baseline.verdict == Verdict::kPass);
  CHECK(as_baseline.ties > 0);
  options.logits_bf16 = false;
  const ParityReport as_exact = judge_parity(engine, narrow, options);
  CHECK(as_exact.verdict == Verdict::kFailToken);
}

TEST_CASE("R_rms of a baseline with rounded logits is reported, not judged") {
  const FakeBehaviour coarse{.noise_seed = 1, .noise = kBaselineNoise, .round_logits = true};
  GreedyReference strictly = reference();
  for (ReferencePrompt& p : strictly.prompts) {
    for (ReferenceStep& s : p.steps) s.baseline_error_norm /= 4;
  }
  FakeEngine engine(coarse);
  ParityOptions options{.is_baseline = true, .logits_bf16 = true};
  options.vocab = kFakeVocab;
  const ParityReport p = judge_parity(engine, strictly, options);
  CHECK(p.verdict == Verdict::kPass);
  REQUIRE(p.r_rms);
  CHECK(*p.r_rms > 1.25);
  CHECK(p.r_rms_limit == 0);
  options.is_baseline = false;
  CHECK(judge_parity(engine, strictly, options).verdict == Verdict::kFailFidelity);
}

TEST_CASE("proof that the engine ran: launches, lengths, pending ids, resets") {
  CHECK(judge({.stuck_counter = true}).verdict == Verdict::kIntegrity);
  const ParityReport two = judge({.launches_per_decode = 2});
  CHECK(two.verdict == Verdict::kIntegrity);
  CHECK_THAT(two.reason, ContainsText("took 2 launches"));
  const ParityReport brief = judge({.missing_ids = 1});
  CHECK(brief.verdict != Verdict::kPass);
  CHECK_THAT(brief.reason, ContainsText("decode(70) returned 69 ids"));
  CHECK(judge({.keeps_context = true}).verdict == Verdict::kNondeterministic);
  // Only the second chunk depends on set_pending(), and only when the step before was a flip.
  GreedyReference forks = reference();
  forks.prompts.resize(3);
  forks.prompts.erase(forks.prompts.begin(), forks.prompts.begin() + 2);
  FakeEngine engine({.at_step =
                         [](const At& at, std::vector<float>& z, int32_t& id) {
                           if (at.step != 63) return;
                           id = (id + 1) % kFakeVocab;
                           z[static_cast<size_t>(id)] = 20;
                         },
                     .ignores_pending = true});
  ParityOptions options{.vocab = kFakeVocab};
  const ParityReport p = judge_parity(engine, forks, options);
  CHECK(p.wrong > 1);  // step 63 and what follows in the wrong context
}

TEST_CASE("an engine without logits is judged by tokens, without ratios") {
  FakeBehaviour mute = good();
  mute.has_logits = false;
  const ParityReport p = judge(mute);
  CHECK(p.verdict == Verdict::kPass);
  CHECK_FALSE(p.r_rms);
  CHECK(p.strict_matched == p.strict_steps);
  FakeEngine engine;
  CHECK_THROWS_WITH(judge_parity(engine, reference(), {}), ContainsText("vocab"));
}
