// Engines that are quicker where nobody looks, and sound ones whose logits cost time.
#include "harness/judge/observed.h"
#include "references/synthetic.h"
#include "tests/support/aggregated.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;

namespace {

constexpr int kTokens = 16;

// Ten blocks in five processes at about 0.85 ms a token, of which each first one of a process is
// observed: `factor` times the block's time, and `handover` ms a token for the logits.
EngineReport observed_engine(double factor, double handover) {
  EngineReport e = testing::example_engine("megakernel", "candidate", 0.85, 10, kTokens);
  e.ms_per_tok.emplace();
  for (const Sample& s : e.samples) {
    if (s.block % 2 != 0) continue;
    // The first decodes of a process take longer, which no median shows.
    e.observed.handovers.push_back(
        {s.process,
         8,
         {90, 3, 3.01, 2.99, 3},
         {200, 3 + 8 * handover, 3.01 + 8 * handover, 2.99 + 8 * handover, 3 + 8 * handover}});
    e.observed.decodes.push_back(
        {s.process, s.block, kTokens, factor * s.times.host_ms + kTokens * handover});
  }
  return e;
}

EngineReport filled(EngineReport e) {
  fill_observed(e);
  return e;
}

double noise(uint64_t key) {  // standard deviation 1
  double sum = 0;
  for (uint64_t i = 0; i < 12; ++i)
    sum += static_cast<double>(splitmix64(12 * key + i) >> 11) * 0x1p-53;
  return sum - 6;
}

// A run of five processes with three observed blocks each and times as on a card: means of processes
// 0.5 % apart, blocks 0.7 %, and decodes of a few tokens 2 %.
EngineReport simulated(uint64_t run, double factor) {
  EngineReport e;
  e.ms_per_tok.emplace();
  uint64_t key = run * 1000;
  for (int block = 0; block < 15; ++block) {
    const int process = block / 3;
    if (block % 3 == 0) {
      HandoverTimes h{process, 16, {}, {}};
      for (int i = 0; i < 9; ++i) {
        h.bare_ms.push_back(16 * 0.28 * (1 + 0.02 * noise(++key)));
        h.shown_ms.push_back(16 * 0.34 * (1 + 0.02 * noise(++key)));
      }
      e.observed.handovers.push_back(h);
    }
    const double mean =
        0.28 * (1 + 0.005 * noise(run * 1000 + 900 + static_cast<uint64_t>(process)));
    Sample s;
    s.process = process, s.block = block, s.tokens = 256, s.valid = true;
    s.times.host_ms = 256 * mean * (1 + 0.007 * noise(++key));
    e.samples.push_back(s);
    e.observed.decodes.push_back(
        {process, block, 256, 256 * (factor * mean * (1 + 0.007 * noise(++key)) + 0.06)});
  }
  return filled(e);
}

}  // namespace

TEST_CASE("an engine that does less where nobody looks is named with both times") {
  const EngineReport e = filled(observed_engine(1.4, 0.05));
  CHECK(*e.observed.quicker.value == Approx(1.4));
  CHECK(*e.observed.handover_ms.value == Approx(0.05));
  CHECK(*e.observed.ms_per_tok.value == Approx(1.4 * 0.85 + 0.05).epsilon(2e-3));
  CHECK_THAT(e.observed.caution, ContainsText("quicker where nobody looks: 0.85") &&
                                     ContainsText("ms a token, 1.24") &&
                                     ContainsText("explains 0.0500: 1.40x [1.40"));
  // What decides is the lower end, 5 % and half of what handing over takes above 1.
  CHECK(filled(observed_engine(1.07, 0.05)).observed.caution.empty());
  CHECK_FALSE(filled(observed_engine(1.09, 0.05)).observed.caution.empty());
  CHECK(filled(observed_engine(1.045, 0)).observed.caution.empty());
  CHECK_FALSE(filled(observed_engine(1.06, 0)).observed.caution.empty());
}

TEST_CASE("what handing logits over takes is no difference") {
  const EngineReport e = filled(observed_engine(1, 0.85));
  CHECK(*e.observed.quicker.value == Approx(1));
  CHECK(e.observed.caution.empty());
  EngineReport other = observed_engine(1.4, 0.05);
  for (HandoverTimes& h : other.observed.handovers) h.shown_ms = {1};  // less than without logits
  CHECK(*filled(other).observed.handover_ms.value == 0);
  for (HandoverTimes& h : other.observed.handovers)
    h.shown_ms = {900};  // more than all of the time
  CHECK(*filled(other).observed.quicker.value == 1);
}

TEST_CASE("observed decodes without a sample, or without a cost of handing over, do not count") {
  EngineReport e = observed_engine(1.4, 0.05);
  e.observed.handovers.erase(e.observed.handovers.begin());  // process 0
  e.samples[2].valid = false;                                // process 1
  e.observed.decodes[2].host_ms *= 2;                        // process 2
  e.observed.decodes[3].block = 100;                         // process 3
  e.observed.decodes[4].tokens = 0;                          // process 4
  fill_observed(e);
  CHECK(*e.observed.quicker.value == Approx((2 * (1.4 * 0.85 + 0.05) - 0.05) / 0.85).epsilon(0.01));
  CHECK(e.observed.caution.empty());  // one pair gives no interval
  CHECK_FALSE(e.observed.quicker_ci);
  e.observed.decodes.clear();
  fill_observed(e);
  CHECK(e.observed.quicker.reason == "no block was observed");
  e.observed.reason = "it gives no logits";
  fill_observed(e);
  for (const Number* n : {&e.observed.quicker, &e.observed.ms_per_tok, &e.observed.handover_ms}) {
    CHECK_FALSE(n->value);
    CHECK(n->reason == "not observed: it gives no logits");
  }
  e = filled(observed_engine(1.4, 0.05));
  e.ms_per_tok.reset();
  e.times_withheld = "FAIL_TOKEN";
  fill_observed(e);
  CHECK((e.observed.caution.empty() && !e.observed.quicker_ci));
  CHECK(e.observed.quicker.reason == "FAIL_TOKEN");
}

TEST_CASE("sound engines with the noise of a card are not named, and those that gain a fifth are") {
  int named = 0, seen = 0;
  for (uint64_t run = 1; run <= 300; ++run) {
    named += !simulated(run, 1).observed.caution.empty();
    seen += !simulated(run, 1.3).observed.caution.empty();
  }
  CHECK(named == 0);
  CHECK(seen >= 270);
}

TEST_CASE("a verdict that favours an engine with the caution is withheld") {
  CaseReport c = testing::example_case(512);
  const auto verdict = [&] { return testing::aggregated(c).comparisons.at(0); };
  REQUIRE(verdict().verdict == "FASTER");
  EngineReport& candidate = c.engines[1];
  candidate.observed = observed_engine(1.4, 0.05).observed;
  ComparisonReport found = verdict();
  CHECK(found.verdict == "INCONCLUSIVE");
  CHECK_THAT(found.verdict_reason, ContainsText(candidate.name + " is quicker where nobody looks"));
  std::swap(c.engines[0].observed, candidate.observed);
  CHECK(verdict().verdict == "FASTER");
  EngineReport slow = c.engines[0], quick = candidate;
  slow.observed = {}, quick.observed.caution = "quicker";
  ComparisonReport slower;
  slower.verdict = "SLOWER";
  withhold_unobserved(quick, slow, slower);
  CHECK(slower.verdict == "INCONCLUSIVE");
  slower.verdict = "SAME";
  withhold_unobserved(quick, slow, slower);
  CHECK(slower.verdict == "SAME");
}
