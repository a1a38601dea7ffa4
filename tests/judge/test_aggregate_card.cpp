// What aggregate() and the Markdown make of the card's readings: energy, dropped blocks, what reading
// costs; and of clocks that differ in all samples.
#include <string>
#include <vector>

#include "harness/judge/conclude.h"
#include "harness/report/report.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

namespace mkbench {
namespace {

using testing::example_case;

// Ten samples of 16 tokens; in each the counter covers `ms` at 400 W.
CaseReport watched_case(double ms) {
  CaseReport c = example_case(0);
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) {
      s.card.emplace();
      s.card->readings = 10;
      s.card->sm_clock_mhz = 1980;
      s.card->counts_energy = true;
      s.card->energy_ms = ms;
      s.card->energy_j = 0.4 * ms;
    }
  }
  return c;
}

const EngineReport& with_card_figures(CaseReport& c) {
  aggregate(c, 0.95, 1, false);
  return c.engines[1];
}

std::string markdown(const CaseReport& c) {
  Report report = testing::example_report();
  report.cases = {c};
  conclude(report);
  return render_markdown(report);
}

TEST_CASE("energy a token is mean power times the time of a token") {
  CaseReport c = watched_case(100);
  const EngineReport& e = with_card_figures(c);
  REQUIRE(e.card.energy_j.value);
  CHECK(*e.card.energy_j.value == Approx(0.4 * e.ms_per_tok->mean));
  CHECK(e.card.energy_s == Approx(1));
  CHECK_THAT(markdown(c), ContainsText("energy a token: eager 3.6 J, megakernel (plain) 0.32 J"));
}

TEST_CASE("energy is absent with its reason") {
  const auto reason = [](CaseReport& c) {
    const EngineReport& e = with_card_figures(c);
    CHECK_FALSE(e.card.energy_j.value);
    return e.card.energy_j.reason;
  };
  CaseReport c = watched_case(99);
  CHECK_THAT(reason(c), ContainsText("covers 0.99 s of 0.13 s of samples, wanted 1 s"));
  CHECK_THAT(markdown(c), ContainsText("no energy of eager: the card's energy counter covers"));
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) s.card->counts_energy = false;
  }
  CHECK(reason(c) == "the card has no energy counter");
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) s.card.reset();
  }
  CHECK(reason(c) == "the driver (NVML) told nothing of the card");
  for (EngineReport& e : c.engines) e.card_reason = "--telemetry off";
  CHECK(reason(c) == "--telemetry off");
  for (EngineReport& e : c.engines) e.verdict = Verdict::kFailToken;
  CHECK_THAT(reason(c), ContainsText("FAIL_TOKEN"));
}

TEST_CASE("dropped blocks are counted by reason and told below the table") {
  CaseReport c = watched_case(100);
  EngineReport& e = c.engines[1];
  for (int i = 0; i < 4; ++i) {
    e.dropped_samples.push_back(e.samples[0]);
    e.dropped_samples.back().dropped_for = i == 0   ? kOtherEngine
                                           : i == 3 ? "power cap"
                                                    : "slow clock";
  }
  with_card_figures(c);
  CHECK((e.card.dropped == 3 && e.card.with_others == 1 && e.card.unfit == 0));
  CHECK(e.card.share == Approx(3.0 / 14));
  CHECK(c.comparisons[0].verdict == "INCONCLUSIVE");
  CHECK(c.comparisons[0].verdict_reason == "21 % of megakernel's blocks dropped");
  CHECK(c.comparisons[0].label == c.comparisons[0].verdict_reason);
  CHECK_THAT(markdown(c), ContainsText("megakernel (plain): 3 of 14 blocks dropped (power cap 1, "
                                       "slow clock 2) and run again; over 20 %: every comparison"));
  // A sample that stands and is unfit counts as well, by the median of those that stand.
  e.dropped_samples.resize(2);
  e.samples[2].card->sm_clock_mhz = 1900;
  with_card_figures(c);
  CHECK((e.card.dropped == 1 && e.card.unfit == 1));
  CHECK(e.card.share == Approx(2.0 / 12));
  CHECK(c.comparisons[0].verdict == "FASTER");
  CHECK_THAT(markdown(c), ContainsText("(slow clock 2) and run again; 1 more were kept\n"));
  e.dropped_samples.clear();
  e.samples[3].card->sm_clock_mhz = 1900;
  with_card_figures(c);
  CHECK((e.card.share == 0.2 && c.comparisons[0].verdict == "FASTER"));
}

TEST_CASE("blocks with and without readings show what these cost") {
  CaseReport c = watched_case(100);
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) {
      const bool watched = (s.block % 2 == 0) == (s.block / 4 % 2 == 0);
      const double of_pair = 16 + s.block / 2;  // milliseconds
      s.times.host_ms = watched ? 1.0005 * of_pair : of_pair;
      if (!watched) s.card.reset();
    }
  }
  const EngineReport& e = with_card_figures(c);
  REQUIRE(e.card.watching_costs.value);
  CHECK(*e.card.watching_costs.value == Approx(0.0005));
  CHECK(e.card.watching_costs_ci);  // a pair in each of five processes
  CHECK_THAT(markdown(c), ContainsText("eager: reading the card costs +0.050 %"));
  for (EngineReport& one : c.engines) {
    for (Sample& s : one.samples) s.process = 0;
  }
  CHECK_FALSE(with_card_figures(c).card.watching_costs_ci);  // five pairs of one process
  CaseReport all = watched_case(100);
  CHECK_FALSE(with_card_figures(all).card.watching_costs.value);
}

TEST_CASE("clocks that differ a little in all samples fail the engine") {
  CaseReport c = example_case(0);
  EngineReport& e = c.engines[1];
  e.clock_overhead = ClockOverhead{.runs = 20, .event_ms = 0.1, .event_sd_ms = 0.01};
  for (Sample& s : e.samples) s.times.event_ms = s.times.host_ms - 0.1;
  CHECK(with_card_figures(c).verdict == Verdict::kPass);
  for (Sample& s : e.samples) s.times.event_ms = 0.985 * s.times.host_ms - 0.1;
  CHECK(with_card_figures(c).verdict == Verdict::kIntegrity);
  CHECK_THAT(e.reasons.back(), ContainsText("clocks disagree in all samples: host and events"));
  CHECK_FALSE(e.ms_per_tok);
}

}  // namespace
}  // namespace mkbench
