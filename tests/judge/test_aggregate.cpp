// From samples to figures: those that are computed, and those that are withheld.
#include "harness/judge/conclude.h"
#include "harness/report/report.h"
#include "references/base/json_fields.h"
#include "tests/support/aggregated.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using testing::aggregated;
using testing::check_withheld;

TEST_CASE("figures of a case come from its samples") {
  const CaseReport c = aggregated(testing::example_case(512));
  const EngineReport& e = c.engines[1];
  CHECK(e.verdict == Verdict::kPass);
  REQUIRE(e.ms_per_tok);
  CHECK(e.ms_per_tok->count == 10);
  CHECK(e.ms_per_tok->median == Approx(0.8512).epsilon(2e-3));
  CHECK(e.ms_per_tok->processes == 5);
  CHECK(*e.tok_per_s.value == Approx(1000 / 0.8512).epsilon(2e-3));
  // Rate, time and both intervals say the same.
  CHECK(*e.tok_per_s.value == Approx(1000 / e.ms_per_tok->mean).epsilon(1e-12));
  CHECK(*e.tok_per_s_ci_low.value == Approx(1000 / e.ms_per_tok->ci->high).epsilon(1e-12));
  CHECK((e.ms_per_tok->ci->low + e.ms_per_tok->ci->high) / 2 == Approx(e.ms_per_tok->mean));
  CHECK((*e.tok_per_s_ci_low.value < *e.tok_per_s.value &&
         *e.tok_per_s.value < *e.tok_per_s_ci_high.value));
  CHECK(*e.host_ms.value == Approx(16 * 0.8512).epsilon(2e-3));
  CHECK(*e.gpu_ms.value == Approx(*e.host_ms.value * 0.999).epsilon(1e-6));
  CHECK(*e.itl_p99_ms.value > *e.itl_p50_ms.value);
  CHECK(*e.first_token_ms.value == Approx(0.8512 * 1.09).epsilon(2e-3));
  CHECK(e.receipts_checked == 160);
  CHECK(*e.share.value == Approx(0.8112 / 0.8512).epsilon(2e-3));
  REQUIRE(c.comparisons.size() == 1);
  CHECK(c.comparisons[0].verdict == "FASTER");
  CHECK(*c.comparisons[0].speedup.value == Approx(9.0512 / 0.8512).epsilon(2e-3));
  CHECK((c.comparisons[0].ci && c.comparisons[0].bca_ci));
  CHECK((c.comparisons[0].blocks == 10 && c.comparisons[0].processes == 5));
  CHECK(c.comparisons[0].margin == 0.01);
  CHECK_THAT(c.comparisons[0].margin_source, ContainsText("no calibration"));
  CHECK(c.comparisons[0].caveat.empty());
}

TEST_CASE("the interval is that of the processes, and tok/s is tokens over time") {
  CaseReport c = testing::example_case(0);
  std::vector<Sample>& samples = c.engines[1].samples;
  double tokens = 0, ms = 0;
  for (size_t b = 0; b < samples.size(); ++b) {
    samples[b].times.host_ms = 16 * (0.8 + 0.01 * samples[b].process);  // equal inside a process
    tokens += 16;
    ms += samples[b].times.host_ms;
  }
  c = aggregated(c);
  const Summary& s = *c.engines[1].ms_per_tok;
  CHECK(s.mean == Approx(0.82));
  CHECK(*c.engines[1].tok_per_s.value == Approx(1000 * tokens / ms).epsilon(1e-12));
  // Five processes with a standard deviation of 0.01 sqrt(2.5); t of 4 degrees of freedom is 2.776.
  REQUIRE(s.ci);
  CHECK(s.ci->high - s.mean == Approx(2.77645 * 0.01 * std::sqrt(2.5 / 5)).epsilon(1e-4));
}

TEST_CASE("every two timed engines have a ratio, baselines first") {
  CaseReport c = testing::example_case(0);
  c.engines.push_back(testing::example_engine("other", "candidate", 0.4, 10, 16));
  c.memory.least_ms = 0;  // else 0.4 ms is impossible
  c.engines.push_back(testing::example_engine("graph", "baseline", 4, 10, 16));
  const auto pairs = [](const CaseReport& of) {
    std::string text;
    for (const ComparisonReport& r : of.comparisons)
      text += r.candidate + "/" + r.baseline + (r.speedup.value ? " " : "? ");
    return text;
  };
  c = aggregated(c);
  CHECK(pairs(c) ==
        "megakernel/eager other/eager megakernel/graph other/graph graph/eager other/megakernel ");
  CHECK(*c.comparisons[5].speedup.value == Approx(2).epsilon(2e-3));
  CHECK(c.comparisons[5].verdict == "FASTER");
  // Engines without times have a line with the reason against baselines alone.
  c.engines[1].verdict = Verdict::kFailToken;
  c.engines[0].timed = false;
  c.engines[0].samples.clear();
  CHECK(pairs(aggregated(c)) == "megakernel/eager? other/eager? megakernel/graph? other/graph ");
}

TEST_CASE("one process gives a time and a ratio, and no verdict") {
  CaseReport c = testing::example_case(0);
  testing::into_one_process(c);
  c = aggregated(c);
  CHECK(c.engines[1].ms_per_tok->processes == 1);
  CHECK(c.engines[1].ms_per_tok->ci);
  CHECK(*c.comparisons[0].speedup.value > 10);
  CHECK(c.comparisons[0].ci);
  CHECK(c.comparisons[0].verdict == "INCONCLUSIVE");
  CHECK_THAT(c.comparisons[0].verdict_reason, ContainsText("one process"));
}

TEST_CASE("no times without a passing verdict") {
  for (const VerdictInfo& row : kVerdicts) {
    CaseReport c = testing::example_case(0);
    c.engines[1].verdict = row.verdict;
    c = aggregated(c);
    INFO(row.name);
    if (times_allowed(row.verdict)) {
      CHECK(c.engines[1].ms_per_tok);
      continue;
    }
    check_withheld(c.engines[1]);
    CHECK_FALSE(c.comparisons[0].speedup.value);
    CHECK_FALSE(c.comparisons[0].ci);
    CHECK_THAT(c.comparisons[0].speedup.reason, ContainsText("megakernel"));
    CHECK(c.engines[0].ms_per_tok);  // the baseline's stay
  }
}

TEST_CASE("a wrong receipt, an invalid sample or a missing receipt takes the times away") {
  CaseReport c = testing::example_case(0);
  c.engines[1].samples[4].receipts_wrong = 1;
  c.engines[1].samples[4].valid = false;
  c.engines[1].samples[4].invalid_reason = "receipt: token 3 is 5, wanted 103";
  c = aggregated(c);
  CHECK(c.engines[1].verdict == Verdict::kFailToken);
  CHECK_THAT(c.engines[1].reasons.at(0), ContainsText("block 4") && ContainsText("token 3"));
  check_withheld(c.engines[1]);

  c = testing::example_case(0);
  c.engines[0].samples[9].valid = false;
  c.engines[0].samples[9].invalid_reason = "clocks disagree";
  c = aggregated(c);
  CHECK(c.engines[0].verdict == Verdict::kIntegrity);
  check_withheld(c.engines[0]);

  for (const double ms : {0.0, -1.0}) {
    c = testing::example_case(0);
    c.engines[1].samples[6].times.host_ms = ms;
    c = aggregated(c);
    CHECK(c.engines[1].verdict == Verdict::kIntegrity);
    CHECK_THAT(c.engines[1].reasons.at(0), ContainsText("sample of block 6 has no time"));
    check_withheld(c.engines[1]);
  }

  c = testing::example_case(0);
  c.engines[1].samples[0].receipts_checked = 15;
  c = aggregated(c);
  CHECK(c.engines[1].verdict == Verdict::kIntegrity);
  CHECK_THAT(c.engines[1].reasons.at(0), ContainsText("15 of 16"));

  c = testing::example_case(0);
  c.n_prompt = 16;  // a prefill test is checked by the tokens after it
  c.engines[1].samples[0].receipts_checked = 8;
  CHECK(aggregated(c).engines[1].verdict == Verdict::kPass);
  c.engines[1].samples[0].receipts_checked = 0;
  CHECK(aggregated(c).engines[1].verdict == Verdict::kIntegrity);

  c = testing::example_case(0);
  c.engines[1].samples.clear();
  c = aggregated(c);
  check_withheld(c.engines[1]);
}

TEST_CASE("without late ids an engine is never the faster one; unscored samples give no times") {
  for (const size_t without : {size_t{0}, size_t{1}}) {
    CaseReport c = testing::example_case(512);
    // The engine without late ids is ten times faster.
    if (without == 0) std::swap(c.engines[0].samples, c.engines[1].samples);
    for (Sample& s : c.engines[without].samples) s.late_id.reset();
    for (const bool late : {false, true}) {
      INFO(without << late);
      for (EngineReport& e : c.engines) {
        for (Sample& s : e.samples) {
          if (late) s.late_id = s.block;
        }
      }
      const CaseReport done = aggregated(c);
      CHECK(done.comparisons[0].label == (late ? "" : "no late id"));
      CHECK(done.comparisons[0].speedup.value.has_value());
      CHECK(done.comparisons[0].verdict == (!late          ? "INCONCLUSIVE"
                                            : without == 1 ? "FASTER"
                                                           : "SLOWER"));
    }
  }
  CaseReport c = testing::example_case(0);
  Sample& s = c.engines[1].samples[7];
  s.valid = false;
  s.receipts_checked = 0;
  s.invalid_reason = kUnscored;
  c = aggregated(c);
  CHECK(c.engines[1].verdict == Verdict::kPass);
  CHECK(c.engines[1].times_withheld == kUnscored);
  check_withheld(c.engines[1]);
}

TEST_CASE("a baseline that only judges has no times, and nothing is compared with it") {
  CaseReport c = testing::example_case(0);
  c.engines[0].timed = false;
  c.engines[0].samples.clear();
  c = aggregated(c);
  CHECK(c.engines[0].verdict == Verdict::kPass);
  check_withheld(c.engines[0]);
  CHECK(c.engines[1].ms_per_tok);
  CHECK_FALSE(c.comparisons[0].speedup.value);
  CHECK(c.comparisons[0].speedup.reason == "eager was not timed");
}

TEST_CASE("on a CPU both engines have times and a ratio that says nothing of a GPU, no ceiling") {
  const Report r = testing::example_cpu_report();
  const CaseReport& c = r.cases[0];
  CHECK(r.verdict == Verdict::kPass);
  for (const EngineReport& e : c.engines) {
    CHECK(e.ms_per_tok);
    CHECK(e.tok_per_s.value);
    CHECK(e.share.reason == "no GPU");
    CHECK_FALSE(e.gpu_ms.value);
  }
  CHECK(*c.comparisons[0].speedup.value > 10);
  CHECK_THAT(c.comparisons[0].caveat,
             ContainsText("host twin") && ContainsText("nothing of a GPU"));
  for (const size_t on_cpu : {0, 1}) {
    CaseReport mixed = testing::example_case(0);
    mixed.engines[on_cpu].device = "cpu";
    CHECK(aggregated(mixed).comparisons[0].caveat == "on a CPU: it says nothing of a GPU");
  }
}

TEST_CASE("speed-up verdicts: faster, slower, same, inconclusive") {
  const auto verdict_at = [](double candidate_ms, int blocks) {
    CaseReport c = testing::example_case(0, blocks);
    c.engines[1] = testing::example_engine("megakernel", "candidate", candidate_ms, blocks, 16);
    return aggregated(c).comparisons[0].verdict;
  };
  CHECK(verdict_at(0.8, 10) == "FASTER");
  CHECK(verdict_at(12, 10) == "SLOWER");
  CHECK(verdict_at(9, 10) == "SAME");
  CHECK(verdict_at(0.8, 2) == "INCONCLUSIVE");  // one process
}

TEST_CASE("samples in two heaps give no verdict, and both heaps are told") {
  // The first `fast` samples of one engine take 1 ms a token, the others `factor` ms.
  const auto compared = [](size_t engine, size_t fast, double factor) {
    CaseReport c = testing::example_case(0);
    for (size_t b = 0; b < 10; ++b)
      c.engines[engine].samples[b].times.host_ms = 16 * (b < fast ? 1 : factor);
    return aggregated(c).comparisons[0];
  };
  for (const size_t engine : {0, 1}) {
    const std::string name = engine == 0 ? "eager" : "megakernel";
    for (const size_t fast : {2, 8}) {
      const ComparisonReport found = compared(engine, fast, 2);
      CHECK(found.verdict == "INCONCLUSIVE");
      CHECK_THAT(found.verdict_reason,
                 ContainsText(name + "'s samples lie in two heaps: ") &&
                     ContainsText(std::to_string(fast) + " of 1.0000 to 1.0000 ms a token, " +
                                  std::to_string(10 - fast) + " of 2.0000 to 2.0000"));
    }
    for (const auto& [fast, factor] : {std::pair<size_t, double>{1, 2}, {9, 2}, {5, 1.99}})
      CHECK_THAT(compared(engine, fast, factor).verdict_reason, !ContainsText("heaps"));
  }
}

TEST_CASE(
    "a speed-up is the same where its whole interval is, and has a side where all of it has") {
  // Eight processes whose log ratios lie alternately above and below the middle of the wanted
  // interval.
  const auto verdict_of = [](double low, double high, const SpeedMargin& margin = {}) {
    CaseReport c = testing::example_case(0, 8);
    for (size_t b = 0; b < 8; ++b)
      c.engines[0].samples[b].process = c.engines[1].samples[b].process = static_cast<int>(b);
    const double middle = (std::log(low) + std::log(high)) / 2;
    const double half = (std::log(high) - std::log(low)) / 2;
    const double spread = half * std::sqrt(7) / t_quantile(0.95, 7);
    for (size_t b = 0; b < 8; ++b) {
      const double ratio = std::exp(middle + (b % 2 == 0 ? spread : -spread));
      c.engines[0].samples[b].times.host_ms = 16 * 9 * ratio;
      c.engines[1].samples[b].times.host_ms = 16 * 9;
    }
    aggregate(c, 0.95, 1, false, margin);
    const ComparisonReport found = c.comparisons[0];
    CHECK(found.margin == margin.value());
    CHECK(found.margin_source == margin.source);
    CHECK(found.ci->low == Approx(low).epsilon(1e-6));
    CHECK(found.ci->high == Approx(high).epsilon(1e-6));
    return found.verdict;
  };
  CHECK(verdict_of(0.995, 1.005) == "SAME");
  CHECK(verdict_of(0.995, 1.2) == "INCONCLUSIVE");
  CHECK(verdict_of(0.8, 1.005) == "INCONCLUSIVE");
  CHECK(verdict_of(0.8, 1.2) == "INCONCLUSIVE");
  CHECK(verdict_of(1.001, 1.005) == "SAME");
  CHECK(verdict_of(1.009, 1.05) == "INCONCLUSIVE");
  CHECK(verdict_of(1.011, 1.05) == "FASTER");
  CHECK(verdict_of(0.95, 0.989) == "SLOWER");
  const SpeedMargin calibrated{.half_width = 0.004, .source = "calibrated"};
  CHECK(verdict_of(1.007, 1.05, calibrated) == "FASTER");
  CHECK(verdict_of(0.995, 1.007, calibrated) == "INCONCLUSIVE");
}

TEST_CASE(
    "too few processes for the machine's calibration give no verdict, and the reason is told") {
  SpeedMargin margin{
      .half_width = 0.004, .source = "here", .least_processes = 5, .too_few = "too few: take 5"};
  const auto compared = [&](int processes) {
    CaseReport c = testing::example_case(0, 10);
    for (EngineReport& e : c.engines) {
      for (Sample& s : e.samples) s.process = s.block % processes;
    }
    aggregate(c, 0.95, 1, false, margin);
    return c.comparisons[0];
  };
  for (const int processes : {2, 4}) {
    const ComparisonReport found = compared(processes);
    CHECK(found.processes == processes);
    CHECK(found.verdict == "INCONCLUSIVE");
    CHECK(found.verdict_reason == "too few: take 5");
    CHECK(found.ci);
    CHECK(found.speedup.value);
  }
  CHECK(compared(5).verdict == "FASTER");
  CHECK(compared(5).verdict_reason == "");
  CHECK_THAT(compared(1).verdict_reason, ContainsText("one process"));
  margin.least_processes = 0;
  CHECK(compared(4).verdict == "FASTER");
}

TEST_CASE("a speed-up takes the blocks that both engines have") {
  CaseReport c = testing::example_case(0);
  c.engines[1].samples.erase(c.engines[1].samples.begin() + 3);
  const ComparisonReport nine = aggregated(c).comparisons[0];
  CHECK(nine.blocks == 9);
  CHECK(*nine.speedup.value == Approx(9 / 0.8).epsilon(2e-3));
  for (Sample& s : c.engines[1].samples) s.block += 100;
  CHECK(aggregated(c).comparisons[0].speedup.reason == "no block holds both engines");
}

TEST_CASE("aggregating twice changes nothing, and more samples are taken in") {
  CaseReport c = aggregated(testing::example_case(0));
  const auto first = json_fields::write(c.engines[1]);
  c = aggregated(c);
  CHECK(json_fields::write(c.engines[1]) == first);
  for (EngineReport& e : c.engines)
    e.samples.push_back(testing::example_sample(e.name, 10, 0, 5, 16));
  c = aggregated(c);
  CHECK(c.engines[1].ms_per_tok->count == 11);
}

TEST_CASE("a report's verdict is its worst case's, a case's its worst engine's") {
  Report r = testing::example_report();
  CHECK(r.verdict == Verdict::kPass);
  CHECK(r.exit_code == 0);
  r.cases[1].engines[1].verdict = Verdict::kFailFidelity;
  r.cases[1].engines[1].reasons = {"R_rms 3 > 1.25"};
  r.cases[2].engines[0].verdict = Verdict::kCudaError;
  conclude(r);
  CHECK(r.cases[1].verdict == Verdict::kFailFidelity);
  CHECK(r.cases[2].verdict == Verdict::kCudaError);
  CHECK(r.verdict == Verdict::kFailFidelity);
  CHECK(r.exit_code == 3);
  REQUIRE(r.reasons.size() == 2);
  CHECK_THAT(r.reasons[0],
             ContainsText("d=512") && ContainsText("FAIL_FIDELITY") && ContainsText("R_rms 3"));
  conclude(r);
  CHECK(r.reasons.size() == 2);
  r.interrupted = true;
  conclude(r);
  CHECK(r.exit_code == 130);
}

TEST_CASE("live passes, skips and reports without a case") {
  Report r = testing::example_report();
  r.cases[0].engines[1].verdict = Verdict::kPassLive;
  conclude(r);
  CHECK(r.verdict == Verdict::kPassLive);
  CHECK(r.exit_code == 0);

  Report skipped = testing::example_report();
  skipped.cases.resize(1);
  skipped.cases[0].verdict = Verdict::kSkipped;
  skipped.cases[0].engines[1].verdict = Verdict::kSkipped;
  conclude(skipped);
  CHECK(skipped.verdict == Verdict::kSkipped);  // the baseline alone shows nothing
  CHECK(skipped.exit_code == 0);

  Report hung;
  hung.cases.resize(1);
  hung.cases[0].verdict = Verdict::kHang;  // before any engine reported
  conclude(hung);
  CHECK(hung.exit_code == 7);

  Report empty;
  conclude(empty);
  CHECK(empty.exit_code == 1);
  CHECK(empty.reasons.at(0) == "no case was run");
  Report usage;
  usage.verdict = Verdict::kBadInput;
  conclude(usage);
  CHECK(usage.exit_code == 2);
}
