// The checks of the gate one by one: each passes just under its limit, fails just over it, and
// fails alone.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/judge/findings.h"
#include "harness/judge/flips.h"
#include "harness/judge/live.h"
#include "harness/judge/ratchet.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using mkbench::testing::At;
using mkbench::testing::FakeBehaviour;
using mkbench::testing::FakeEngine;
using mkbench::testing::kFakeVocab;

namespace {

constexpr int kSteps = 40, kLayers = 3;
constexpr double kBaselineNoise = 0.02;

const GreedyReference& reference() {
  static const GreedyReference captured = [] {
    FakeEngine truth;
    FakeEngine baseline({.noise_seed = 1, .noise = kBaselineNoise, .round_logits = true});
    FakeEngine head_fp32({.noise_seed = 1, .noise = kBaselineNoise});
    return capture_live(truth, baseline, head_fp32, kFakeVocab, {{0, 5, 9}, {0, 1}, {1, 2, 3, 4}},
                        kSteps);
  }();
  return captured;
}

FakeBehaviour good() { return {.noise_seed = 2, .noise = kBaselineNoise / 2}; }

ParityReport judge(const FakeBehaviour& behaviour, ParityOptions options = {}) {
  FakeEngine engine(behaviour);
  options.vocab = kFakeVocab;
  return judge_parity(engine, reference(), options);
}

std::set<Check> failed(const ParityReport& report) {
  std::set<Check> names;
  for (const CheckResult& r : report.checks) {
    if (r.status == CheckStatus::kFailed) names.insert(r.check);
  }
  return names;
}

CheckStatus status_of(const ParityReport& report, Check check) {
  const CheckResult* result = find_check(report, check);
  REQUIRE(result != nullptr);
  return result->status;
}

double value_of(const ParityReport& report, Check check) {
  const CheckResult* result = find_check(report, check);
  REQUIRE(result != nullptr);
  REQUIRE(result->value);
  return *result->value;
}

}  // namespace

TEST_CASE("every check of a good engine passes or says why it does not apply") {
  const ParityReport p = judge(good());
  CHECK(p.verdict == Verdict::kPass);
  CHECK(failed(p).empty());
  CHECK(p.error_by_position.empty());
  for (size_t i = 1; i < p.checks.size(); ++i) CHECK(p.checks[i - 1].check < p.checks[i].check);
  const std::set<Check> run = {Check::kRan,  Check::kFinite,  Check::kRms,   Check::kStep,
                               Check::kInf,  Check::kKl,      Check::kFlips, Check::kDecided,
                               Check::kSelf, Check::kNearTie, Check::kSame,  Check::kStrict};
  for (const Check check : run) {
    INFO(check_name(check));
    CHECK(status_of(p, check) == CheckStatus::kPassed);
  }
  CHECK(status_of(p, Check::kRatchet) == CheckStatus::kNotApplicable);
  for (const CheckResult& r : p.checks) {
    if (r.status == CheckStatus::kNotApplicable) CHECK_FALSE(r.detail.empty());
  }
}

TEST_CASE("each ratio passes at a limit just over it, and alone fails at one just under it") {
  const ParityReport measured = judge(good());
  const std::pair<Check, double RatioLimits::*> ratios[] = {{Check::kRms, &RatioLimits::rms},
                                                            {Check::kStep, &RatioLimits::step},
                                                            {Check::kInf, &RatioLimits::inf},
                                                            {Check::kKl, &RatioLimits::kl}};
  for (const auto& [check, limit] : ratios) {
    INFO(check_name(check));
    const double value = value_of(measured, check);
    CHECK((value > 0.01 && value < 1));
    ParityOptions options;
    options.limits.*limit = value * 1.001;
    CHECK(judge(good(), options).verdict == Verdict::kPass);
    options.limits.*limit = value * 0.999;
    const ParityReport p = judge(good(), options);
    CHECK(p.verdict == Verdict::kFailFidelity);
    CHECK(failed(p) == std::set<Check>{check});
    CHECK_FALSE(p.suspect_prompt.empty());
    std::vector<int> judged, shown;
    for (const ParityRow& row : p.rows) {
      if (row.prompt == p.suspect_prompt) judged.push_back(row.position);
    }
    for (const ErrorAt& e : p.error_by_position) shown.push_back(e.at);
    CHECK(shown == judged);
  }
}

TEST_CASE("the limits are those that reports/limits derives from legitimate decoders") {
  std::ifstream in("reports/limits/limits.json");
  const nlohmann::json derived = nlohmann::json::parse(in);
  for (const auto& [name, precision] : {std::pair{"bf16", PrecisionClass::kBf16},
                                        {"fp32-accumulate", PrecisionClass::kFp32Accumulate},
                                        {"fp16", PrecisionClass::kFp16}}) {
    INFO(name);
    const RatioLimits limits = limits_of(precision);
    CHECK(limits.rms == derived.at(name).at("rms").get<double>());
    CHECK(limits.step == derived.at(name).at("step").get<double>());
    CHECK(limits.inf == derived.at(name).at("inf").get<double>());
    CHECK(limits.kl == derived.at(name).at("kl").get<double>());
    CHECK(limits.sweep == derived.at(name).at("sweep").get<double>());
  }
}

TEST_CASE("the hash of the logits: equal bits, other bits, and no bits to speak of") {
  const ParityReport p = judge(good());
  CHECK(p.logits_sha256.size() == 64);
  CHECK(judge(good()).logits_sha256 == p.logits_sha256);
  FakeBehaviour other = good();
  ++other.noise_seed;
  const ParityReport q = judge(other);
  CHECK(q.logits_sha256 != p.logits_sha256);
  CHECK(join_parity({p, q}).logits_sha256 == p.logits_sha256 + ", " + q.logits_sha256);
  // Each id and each logit counts, the last one of a prompt as well.
  for (const bool of_id : {true, false}) {
    FakeBehaviour last = good();
    last.at_step = [of_id](const At& at, std::vector<float>& z, int32_t& id) {
      if (at.step != kSteps - 1) return;
      if (of_id) id ^= 1;
      if (!of_id) z.back() += 0.001F;
    };
    CHECK(judge(last).logits_sha256 != p.logits_sha256);
  }

  FakeBehaviour silent = good();
  silent.has_logits = false;
  CHECK(judge(silent).logits_sha256.empty());
  struct Unsteady : FakeEngine {
    using FakeEngine::FakeEngine;
    EngineCapabilities capabilities() const override {
      EngineCapabilities can = FakeEngine::capabilities();
      can.deterministic = false;
      return can;
    }
  } unsteady(good());
  ParityOptions options;
  options.vocab = kFakeVocab;
  CHECK(judge_parity(unsteady, reference(), options).logits_sha256.empty());
  // Missing steps are no other bits.
  FakeEngine cut(good());
  options.on_progress = [](const std::string&, int, int) { throw std::runtime_error("cut"); };
  ParityReport part;
  CHECK_THROWS(judge_parity(cut, reference(), options, part));
  CHECK(part.steps > 0);
  CHECK(part.logits_sha256.empty());
}

TEST_CASE("a lossy engine is judged by tokens and divergence alone") {
  ParityOptions options;
  options.precision = PrecisionClass::kLossy;
  options.limits = limits_of(options.precision);
  options.ratchet = Ratchet{.rms = 1e-6, .step = {}, .inf = {}, .kl = {}, .repeats_sha256 = ""};
  const FakeBehaviour noisy{.noise_seed = 2, .noise = 12 * kBaselineNoise};
  CHECK(failed(judge(noisy)) ==
        std::set<Check>{Check::kRms, Check::kStep, Check::kInf, Check::kKl});
  const ParityReport p = judge(noisy, options);
  CHECK(p.precision == "lossy");
  CHECK(failed(p) == std::set<Check>{Check::kKl});
  CHECK(p.r_rms_limit == 0);
  for (const Check check : {Check::kRms, Check::kStep, Check::kInf}) {
    CHECK(status_of(p, check) == CheckStatus::kNotApplicable);
    CHECK(value_of(p, check) > 2);
  }
  CHECK(status_of(p, Check::kRatchet) == CheckStatus::kNotApplicable);
}

TEST_CASE("the ratchet fails just over its factors of the committed ratios and says what to add") {
  const ParityReport sound = judge(good());
  const Ratchet reached{.rms = value_of(sound, Check::kRms),
                        .step = value_of(sound, Check::kStep),
                        .inf = value_of(sound, Check::kInf),
                        .kl = value_of(sound, Check::kKl),
                        .repeats_sha256 = ""};
  ParityOptions options;
  options.ratchet_key = RatchetKey{"fake", "cpu", "tiny", "", "r1"};
  const ParityReport none = judge(good(), options);
  CHECK(none.verdict == Verdict::kPass);
  CHECK_THAT(
      find_check(none, Check::kRatchet)->detail,
      ContainsText(
          R"({"engine":"fake","card":"cpu","model":"tiny","lagset":"","reference_sha256":"r1","r_rms":)"));
  options.ratchet = reached;
  CHECK(judge(good(), options).verdict == Verdict::kPass);
  const auto committed = [&](double rms, double largest, double kl) {
    options.ratchet = Ratchet{.rms = reached.rms / rms,
                              .step = *reached.step / largest,
                              .inf = *reached.inf / largest,
                              .kl = *reached.kl / kl,
                              .repeats_sha256 = ""};
    return judge(good(), options);
  };
  CHECK(committed(1.099, 1.249, 1.249).verdict == Verdict::kPass);
  for (const auto& [p, named] : {std::pair{committed(1.101, 1, 1), "R_rms"},
                                 {committed(1, 1.251, 1), "R_step"},
                                 {committed(1, 1.251, 1), "R_inf"},
                                 {committed(1, 1, 1.251), "R_KL"}}) {
    CHECK(p.verdict == Verdict::kFailFidelity);
    CHECK(failed(p) == std::set<Check>{Check::kRatchet});
    CHECK_THAT(p.reason, ContainsText(named));
  }
  // Entries may lack all but R_rms, and a small R_KL may grow by more than a quarter.
  const Ratios found{
      .rms = 1, .step = 9, .inf = 9, .kl = 0.0049, .worst_prompt = "", .worst_position = -1};
  CHECK(over_ratchet(found, {.rms = 1, .step = {}, .inf = {}, .kl = 1e-4, .repeats_sha256 = ""}) ==
        "");
  CHECK_THAT(
      over_ratchet(
          {.rms = 1, .step = 0, .inf = 0, .kl = 0.0052, .worst_prompt = "", .worst_position = -1},
          {.rms = 1, .step = {}, .inf = {}, .kl = 1e-4, .repeats_sha256 = ""}),
      ContainsText("R_KL 0.0052 > 0.0051, from the committed 0.0001"));
}

TEST_CASE("ratios from errors that are known exactly, each under its own name") {
  struct Row {
    double norm, baseline_norm, inf, baseline_inf;
  };
  RatioSums sums;
  ReferenceStep step;
  step.position = 7;
  // In the last step the baseline itself is far off; the largest of each kind is in the middle.
  for (const Row& row :
       {Row{0.5, 1, 0.25, 0.1}, Row{6, 2, 1, 0.5}, Row{0.5, 3, 0.5, 0.2}, Row{12, 10, 0.75, 0.3}}) {
    step.baseline_error_norm = row.baseline_norm;
    step.baseline_error_inf_top = row.baseline_inf;
    step.baseline_kl = 1e-3;
    sums.add("p", step, {.squared = row.norm * row.norm, .inf_top = row.inf, .kl = 2e-3});
    ++step.position;
  }
  const Ratios r = *sums.ratios();
  CHECK(r.rms == Approx(std::sqrt((0.25 + 36 + 0.25 + 144) / (1 + 4 + 9 + 100))));
  CHECK(r.step == Approx(6 / 2.5));  // 12 against 10 is less than 6 against the median of 2 and 3
  CHECK((r.worst_prompt == "p" && r.worst_position == 8));
  CHECK(r.inf == Approx(2.0));
  CHECK(r.kl == Approx(8e-3 / (4e-3 + 1e-6)));
  CHECK_FALSE(RatioSums().ratios());

  Findings findings;
  ParityReport report;
  judge_ratios(sums, reference(), {}, report, findings);
  findings.conclude(report);
  CHECK(report.r_rms == r.rms);
  CHECK(value_of(report, Check::kRms) == r.rms);
  CHECK(value_of(report, Check::kStep) == r.step);
  CHECK(value_of(report, Check::kInf) == r.inf);
  CHECK(value_of(report, Check::kKl) == r.kl);
}

TEST_CASE("rounded logits are allowed their rounding, unless the class keeps them in fp32") {
  FakeBehaviour rounds = good();
  rounds.round_logits = true;
  ParityOptions fp32;
  fp32.precision = PrecisionClass::kFp32Accumulate;
  CHECK(value_of(judge(rounds), Check::kKl) < 0.999 * value_of(judge(rounds, fp32), Check::kKl));
  CHECK(value_of(judge(good()), Check::kKl) == value_of(judge(good(), fp32), Check::kKl));
}

TEST_CASE("NaN in a hidden state or a KV row is seen and named, and nothing else") {
  const auto with_nan = [](int nan_layer, int nan_row) {
    FakeBehaviour b = good();
    b.hidden = [nan_layer, nan_row](const std::vector<int32_t>&, int layer) {
      return std::vector<float>{1, nan_row < 0 && layer == nan_layer ? std::nanf("") : 2.0F};
    };
    b.kv_row = [nan_layer, nan_row](const std::vector<int32_t>&, int layer, int row) {
      return std::vector<float>{layer == nan_layer && row == nan_row ? INFINITY : 1.0F};
    };
    return b;
  };
  ParityOptions options;
  options.layers = kLayers;
  CHECK(judge(with_nan(kLayers, 0), options).verdict == Verdict::kPass);
  const ParityReport state = judge(with_nan(2, -1), options);
  CHECK(failed(state) == std::set<Check>{Check::kFinite});
  CHECK(state.verdict == Verdict::kFailFidelity);
  CHECK_THAT(state.reason, ContainsText("hidden state of layer 2"));
  // The first decoded row of a prompt is always looked at; rows in the middle with every_row only.
  const ParityReport boundary = judge(with_nan(1, 2), options);
  CHECK(failed(boundary) == std::set<Check>{Check::kFinite});
  CHECK_THAT(boundary.reason, ContainsText("KV row of layer 1, position 2"));
  CHECK(judge(with_nan(1, 20), options).verdict == Verdict::kPass);
  CHECK_THAT(judge(with_nan(1, 3 + kSteps - 1), options).reason,  // the last row of the longest
             ContainsText("KV row of layer 1, position 42"));
  options.every_row = true;
  CHECK_THAT(judge(with_nan(1, 20), options).reason, ContainsText("layer 1, position 20"));
}

TEST_CASE("what an engine lacks rules checks out, with the reason, and the rest still judges") {
  FakeBehaviour mute = good();
  mute.has_logits = false;
  const ParityReport p = judge(mute);
  CHECK(p.verdict == Verdict::kPass);
  for (const Check check : {Check::kFinite, Check::kRms, Check::kStep, Check::kInf, Check::kKl,
                            Check::kRatchet, Check::kSelf}) {
    INFO(check_name(check));
    CHECK(status_of(p, check) == CheckStatus::kNotApplicable);
    CHECK_THAT(find_check(p, check)->detail, ContainsText("logits"));
  }
  FakeBehaviour free_only = good();
  free_only.takes_forced = false;
  free_only.counts_launches = false;
  free_only.stuck_counter = true;
  const ParityReport unforced = judge(free_only);
  INFO(unforced.reason);
  CHECK(unforced.verdict == Verdict::kPass);
  CHECK_THAT(find_check(unforced, Check::kRan)->detail, ContainsText("counts no launches"));
  // Each step has a prefill of its own and is still judged in the truth's context.
  free_only.at_step = [](const At& at, std::vector<float>& z, int32_t& id) {
    if (at.first_id != 0 || at.position != 2 + 31) return;
    id = (id + 1) % kFakeVocab;
    z[static_cast<size_t>(id)] = 20;
  };
  const ParityReport wrong = judge(free_only);
  CHECK(wrong.verdict == Verdict::kFailToken);
  CHECK(wrong.wrong == 2);  // position 33 of both strict prompts
}

TEST_CASE("each rule about tokens fails under its own name") {
  const auto at_one_step = [](int32_t by, float logit) {
    FakeBehaviour b = good();
    b.at_step = [by, logit](const At& at, std::vector<float>& z, int32_t& id) {
      if (at.first_id != 0 || at.step != 5) return;
      id = (id + by) % kFakeVocab;
      if (logit > 0) z[static_cast<size_t>(id)] = logit;
    };
    return b;
  };
  const std::set<Check> of_token = failed(judge(at_one_step(1, 20)));
  CHECK(of_token.count(Check::kDecided) == 1);
  CHECK(of_token.count(Check::kStrict) == 1);
  CHECK(of_token.count(Check::kSelf) == 0);
  const ParityReport own = judge(at_one_step(1, 0));
  CHECK(own.verdict == Verdict::kFailSelf);
  CHECK(failed(own).count(Check::kSelf) == 1);
  CHECK(failed(own).count(Check::kRms) == 0);
  CHECK_FALSE(own.suspect_prompt.empty());  // the step that shows it
  CHECK_FALSE(own.suspect_is_free);
  FakeBehaviour stuck = good();
  stuck.stuck_counter = true;
  CHECK(failed(judge(stuck)) == std::set<Check>{Check::kRan});
}

TEST_CASE("as many flips as the cap allows pass, and one more fails by its name") {
  const std::vector<ReferenceStep>& steps = reference().prompts[2].steps;
  std::vector<ReferenceStep> ties;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(ties),
               [](const ReferenceStep& s) { return !s.decided; });
  const auto allowed = static_cast<size_t>(most_flips(reference(), false));
  REQUIRE(ties.size() > allowed);
  for (const size_t flips : {allowed, allowed + 1}) {
    FakeBehaviour b = good();
    b.at_step = [&](const At& at, std::vector<float>& z, int32_t& id) {
      for (size_t i = 0; i < flips; ++i) {
        if (at.first_id != 1 || at.position != ties[i].position) continue;
        const float top = z[static_cast<size_t>(id)];
        id = id == ties[i].token ? ties[i].top_ids[1] : id;
        z[static_cast<size_t>(id)] = top + 0.001F;
      }
    };
    FakeEngine engine(b);
    const ParityReport p = judge_parity(engine, reference(), {.vocab = kFakeVocab});
    INFO(p.reason);
    CHECK(p.flips == static_cast<int>(flips));
    CHECK(p.flips_allowed == static_cast<int>(allowed));
    CHECK(find_check(p, Check::kFlips)->limit == static_cast<double>(allowed));
    CHECK(p.verdict == (flips == allowed ? Verdict::kPass : Verdict::kFailToken));
    CHECK(failed(p) == (flips == allowed ? std::set<Check>{} : std::set<Check>{Check::kFlips}));
  }
}

TEST_CASE("one strict token alone, and a wrong token of the free run alone, are found") {
  FakeBehaviour last = good();
  last.at_step = [](const At& at, std::vector<float>& z, int32_t& id) {
    if (at.first_id != 0 || at.position != 2 + kSteps - 1) return;  // of the first prompt only
    id = (id + 1) % kFakeVocab;
    z[static_cast<size_t>(id)] = 20;
  };
  const ParityReport one = judge(last);
  CHECK(one.strict_matched == one.strict_steps - 1);
  CHECK(failed(one).count(Check::kStrict) == 1);

  // A third token at a near tie, without logits: not only another id than with them, but a wrong one.
  const std::vector<ReferenceStep>& steps = reference().prompts[2].steps;
  const ReferenceStep tie =
      *std::find_if(steps.begin(), steps.end(), [](const ReferenceStep& s) { return !s.decided; });
  FakeBehaviour free = good();
  free.at_step = [&](const At& at, std::vector<float>&, int32_t& id) {
    if (at.first_id == 1 && at.position == tie.position && !at.with_logits) id = tie.top_ids[2];
  };
  const ParityReport third = judge(free);
  CHECK(third.wrong == 1);
  CHECK(third.verdict == Verdict::kFailToken);
  CHECK(failed(third) == std::set<Check>{Check::kNearTie, Check::kSame});
  CHECK((third.suspect_position == tie.position && third.suspect_is_free));
  // The second best is a near tie, and only not the same.
  free.at_step = [&](const At& at, std::vector<float>&, int32_t& id) {
    if (at.first_id == 1 && at.position == tie.position && !at.with_logits) id = tie.top_ids[1];
  };
  const ParityReport second = judge(free);
  CHECK(second.verdict == Verdict::kNondeterministic);
  CHECK(failed(second) == std::set<Check>{Check::kSame});
  CHECK((second.suspect_position == tie.position && second.suspect_is_free));
  // Where the engine says that its bits vary, a near tie may fall either way, and no other step.
  free.deterministic = false;
  const ParityReport varies = judge(free);
  CHECK(varies.verdict == Verdict::kPass);
  CHECK(find_check(varies, Check::kSame)->status == CheckStatus::kPassed);
  const ReferenceStep decided =
      *std::find_if(steps.begin(), steps.end(), [](const ReferenceStep& s) { return s.decided; });
  free.at_step = [&](const At& at, std::vector<float>&, int32_t& id) {
    if (at.first_id == 1 && at.position == decided.position && !at.with_logits)
      id = decided.top_ids[1];
  };
  CHECK(failed(judge(free)).count(Check::kSame) == 1);
}

TEST_CASE("an id that never came is missing, not inconsistent with its logits") {
  FakeBehaviour brief = good();
  brief.missing_ids = 1;
  const std::set<Check> names = failed(judge(brief));
  CHECK(names.count(Check::kRan) == 1);
  CHECK(names.count(Check::kSelf) == 0);
}
