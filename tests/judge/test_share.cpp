// What the ceiling says of an engine: its share, and times that the memory's pins forbid.
#include "harness/judge/conclude.h"
#include "harness/judge/share.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/model_row.h"
#include "tests/support/aggregated.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using testing::aggregated;
using testing::check_withheld;

TEST_CASE("the share is the ratio of the ceiling's time by pairs of blocks, with an interval") {
  CaseReport c = testing::example_case(0);
  // Both drift by a third over the blocks; their ratio stays.
  for (size_t b = 0; b < 10; ++b) {
    const double drift = 1 + 0.03 * static_cast<double>(b);
    const double wobble = 1 + 0.0005 * (c.engines[1].samples[b].process - 2);
    c.ceiling.samples[b].times.host_ms = 32 * 0.77 * drift;
    c.engines[1].samples[b].times.host_ms = 16 * 0.8 * drift * wobble;
  }
  const CaseReport done = aggregated(c);
  const EngineReport& e = done.engines[1];
  CHECK(*e.share.value == Approx(0.77 / 0.8).epsilon(1e-5));
  REQUIRE(e.share_ci);
  CHECK((e.share_ci->low < 0.9625 && 0.9625 < e.share_ci->high));
  CHECK(e.share_ci->high - e.share_ci->low < 0.002);
  CHECK(e.share_note.empty());
  CHECK(done.ceiling.ms_per_tok->count == 10);
  CHECK(*done.ceiling.gb_per_s.value ==
        Approx(c.memory.bytes_per_token / (0.77 * 1.135 * 1e6)).epsilon(1e-6));
  CHECK(done.engines.size() == 2);  // the ceiling is compared with nothing
  CHECK(done.comparisons.size() == 1);

  // Blocks that lack one of them do not count; below 8 pairs of one process there is no interval.
  testing::into_one_process(c);
  c.ceiling.samples.erase(c.ceiling.samples.begin(), c.ceiling.samples.begin() + 3);
  const CaseReport seven = aggregated(c);
  CHECK(*seven.engines[1].share.value == Approx(0.9625).epsilon(1e-3));
  CHECK_FALSE(seven.engines[1].share_ci);
}

TEST_CASE("a ceiling's sample without a time leaves the engines without a share") {
  for (const double ms : {0.0, -1.0}) {
    CaseReport c = testing::example_case(0);
    c.ceiling.samples[6].times.host_ms = ms;
    c = aggregated(c);
    CHECK_FALSE(c.ceiling.ms_per_tok);
    CHECK_FALSE(c.ceiling.gb_per_s.value);
    CHECK_THAT(c.ceiling.gb_per_s.reason, ContainsText("sample of block 6 has no time"));
    CHECK(c.engines[1].share.reason == c.ceiling.gb_per_s.reason);
    CHECK(c.engines[1].verdict == Verdict::kPass);
    CHECK(c.engines[1].ms_per_tok);
  }
}

TEST_CASE("an engine that beats the ceiling says so and fails nothing") {
  const auto share_of = [](double factor, int blocks = 10) {
    CaseReport c = testing::example_case(0, blocks);
    if (blocks < 8) testing::into_one_process(c);
    for (Sample& s : c.ceiling.samples) s.times.host_ms *= factor;
    return aggregated(c).engines[1];
  };
  const EngineReport above = share_of(1.1);
  CHECK(above.verdict == Verdict::kPass);
  CHECK(*above.share.value > 1);
  CHECK(above.share_note == kCeilingNotFound);
  // Above 1 by less than the interval, or without an interval, says nothing.
  const double level = 1.0001 / *share_of(1).share.value;
  CHECK(*share_of(level).share.value == Approx(1.0001).epsilon(1e-9));
  CHECK(share_of(level).share_note.empty());
  CHECK(share_of(1.1, 7).share_note.empty());
  CaseReport c = testing::example_case(0);
  for (Sample& s : c.ceiling.samples) s.times.host_ms *= 1.1;
  Report r = testing::example_report();
  r.cases = {aggregated(c)};
  conclude(r);
  CHECK(r.exit_code == 0);
  CHECK_THAT(render_markdown(r), ContainsText(", ceiling not found |"));
}

TEST_CASE("a ceiling far below the pins, or apart in two processes, withholds FASTER") {
  const auto with_ceiling = [](double of_pins, double apart) {
    CaseReport c = testing::example_case(0);
    const double ms = c.memory.bytes_per_token / (of_pins * c.memory.pin_gb_per_s * 1e6);
    for (Sample& s : c.ceiling.samples)
      s.times.host_ms = ms * s.tokens * (s.process == 3 ? apart : 1);
    return aggregated(c);
  };
  for (const double of_pins : {0.86, 0.99}) {
    for (const double apart : {0.972, 1.0, 1.029}) {
      const CaseReport c = with_ceiling(of_pins, apart);
      CHECK(ceiling_doubt(c) == "");
      CHECK(c.comparisons[0].verdict == "FASTER");
    }
  }
  CaseReport low = with_ceiling(0.526, 1);
  CHECK(low.comparisons[0].verdict == "INCONCLUSIVE");
  CHECK(low.comparisons[0].verdict_reason == ceiling_doubt(low));
  CHECK_THAT(ceiling_doubt(low), ContainsText("reads 842 GB/s, 53 % of the rate of the memory's "
                                              "pins, wanted at least 85 %"));
  CHECK_THAT(ceiling_doubt(with_ceiling(0.849, 1)), ContainsText(", 85 % of the rate"));
  for (const double apart : {0.97, 1.031}) {
    const CaseReport c = with_ceiling(0.95, apart);
    CHECK(c.comparisons[0].verdict == "INCONCLUSIVE");
    CHECK_THAT(c.comparisons[0].verdict_reason,
               ContainsText(" in one process and ") && ContainsText("less than 3 % apart"));
  }
  // Where the rate of the pins is not known, nor a ceiling, there is no doubt of it. A candidate
  // that is slower stays so.
  low.memory.pin_gb_per_s = 0;
  CHECK(aggregated(low).comparisons[0].verdict == "FASTER");
  low.ceiling.samples.clear();
  CHECK(ceiling_doubt(aggregated(low)) == "");
  CaseReport slow = with_ceiling(0.526, 1);
  for (Sample& s : slow.engines[1].samples) s.times.host_ms *= 30;
  CHECK(aggregated(slow).comparisons[0].verdict == "SLOWER");
}

TEST_CASE("a time under the bytes over the pins is IMPOSSIBLE, of decodes and of prefills") {
  struct Card {
    double pin_gb_per_s;
    int64_t l2_bytes;
    double least_us;  // of a step of Qwen3-0.6B at depth 0, from 1,192.1 MB less L2
  };
  // H100 and H200.
  for (const Card& card : {Card{3352, 50'000'000, 340.7}, Card{4917, 60'000'000, 230.2}}) {
    for (const bool prefill : {false, true}) {
      INFO(card.pin_gb_per_s << prefill);
      const auto verdict_at = [&](double factor, int blocks, double wobble, int processes = 5) {
        CaseReport c = testing::example_case(0, blocks, 1);
        if (prefill) c.n_prompt = 64;
        c.memory = memory_bound({.shape = kQwen3_0_6B}, 0, 1, c.n_prompt, card.pin_gb_per_s,
                                card.l2_bytes);
        for (size_t b = 0; b < c.engines[1].samples.size(); ++b) {
          Sample& s = c.engines[1].samples[b];
          if (prefill) s.tokens = 64;
          s.process %= processes;
          const double noise = s.process % 2 == 0 ? wobble : -wobble;
          s.times.host_ms = 1e-3 * card.least_us * factor * (1 + noise);
        }
        return aggregated(c).engines[1];
      };
      CHECK(verdict_at(1.002, 10, 0).verdict == Verdict::kPass);
      const EngineReport fast = verdict_at(0.98, 10, 0.001);
      CHECK(fast.verdict == Verdict::kImpossible);
      check_withheld(fast);
      CHECK_THAT(fast.reasons.at(0),
                 ContainsText("faster than the memory's pins") && ContainsText("of 10 samples"));
      // Noise that leaves the limit above the bound proves nothing.
      CHECK(verdict_at(0.98, 10, 0.05).verdict == Verdict::kPass);
      CHECK(verdict_at(0.98, 1, 0).verdict == Verdict::kImpossible);
      // The limit of two processes is 318 standard errors away: ten samples under the bound say more.
      const EngineReport two = verdict_at(0.98, 10, 0.001, 2);
      CHECK(two.verdict == Verdict::kImpossible);
      CHECK_THAT(two.reasons.at(0), ContainsText("the slowest of 10 samples"));
      CHECK(verdict_at(0.98, 8, 0.001, 2).verdict == Verdict::kPass);
      CHECK(verdict_at(0.98, 10, 0.03, 2).verdict == Verdict::kPass);
    }
  }
  // What the ceiling reached decides nothing, nor does a bound that is not known.
  CaseReport c = testing::example_case(0);
  c.memory.least_ms = 0;
  for (Sample& s : c.engines[1].samples) s.times.host_ms *= 1e-3;
  CHECK(aggregated(c).engines[1].verdict == Verdict::kPass);
}

TEST_CASE("a quantised engine reads fewer bytes: no bound, no share, no rank beside the others") {
  CaseReport c = testing::example_case(0);
  for (Sample& s : c.engines[1].samples) s.times.host_ms *= 0.25;
  CHECK(aggregated(c).engines[1].verdict == Verdict::kImpossible);
  CaseReport own = c;
  own.engines[1].own_weights = true;
  own = aggregated(own);
  CHECK(own.engines[1].verdict == Verdict::kPass);
  CHECK_FALSE(own.engines[1].share.value);
  CHECK(own.comparisons.at(0).label == "lossy");
  // One that says how many bytes it reads has both again.
  own.engines[1].declared_bytes = true;
  own.engines[1].verdict = Verdict::kPass;
  own = aggregated(own);
  CHECK(own.engines[1].verdict == Verdict::kImpossible);
  c.engines[1].parity.emplace().precision = "lossy";
  const CaseReport lossy = aggregated(c);
  const EngineReport& e = lossy.engines[1];
  CHECK(e.verdict == Verdict::kPass);
  CHECK(e.ms_per_tok);
  CHECK_FALSE(e.share.value);
  CHECK_THAT(e.share.reason, ContainsText("fewer bytes"));
  const ComparisonReport& beside = lossy.comparisons.at(0);
  CHECK(*beside.speedup.value > 10);
  CHECK(beside.verdict == "INCONCLUSIVE");
  CHECK(beside.label == "lossy");
  CHECK_THAT(beside.verdict_reason, ContainsText("megakernel is quantised"));
  // Its row is in a table of its own, without a ratio to the others.
  CaseReport shown = lossy;
  shown.engines[1].parity->checks = {
      {.check = Check::kKl, .status = CheckStatus::kPassed, .value = 0.64, .limit = 1.5}};
  shown.engines[1].parity->strict_matched = shown.engines[1].parity->strict_steps = 88;
  const std::string table = engine_table({&shown});
  const size_t apart = table.find("\nQuantised engines, ranked with none of the others");
  REQUIRE(apart != std::string::npos);
  CHECK(table.find("megakernel") > apart);
  CHECK_THAT(table.substr(apart), ContainsText("88 of 88 | 0.64 of 1.5 | PASS"));
  CHECK(table.substr(apart).find('x') == std::string::npos);
  CHECK(table.find("eager") < apart);
  // Two of them are compared.
  c.engines[0].parity.emplace().precision = "lossy";
  CHECK(aggregated(c).comparisons.at(0).verdict == "FASTER");
}

TEST_CASE("without a ceiling the share is null with the reason") {
  CaseReport c = testing::example_case(0);
  c.ceiling = {};
  c.ceiling.reason = "weights and KV (3.0 MB) are under 4 x L2 (50.0 MB)";
  c = aggregated(c);
  CHECK(c.engines[1].verdict == Verdict::kPass);
  CHECK_FALSE(c.engines[1].share.value);
  CHECK_THAT(c.engines[1].share.reason, ContainsText("4 x L2"));
  CHECK_FALSE(c.ceiling.ms_per_tok);
  c.ceiling.reason.clear();
  CHECK(aggregated(c).engines[1].share.reason == "no samples of the ceiling were taken");
  // One that died after some blocks: those count, and its death stays in the report.
  c = testing::example_case(0);
  c.ceiling.samples.resize(4);
  c.ceiling.reason = "the process was killed";
  c = aggregated(c);
  CHECK(*c.engines[1].share.value == Approx(0.95).epsilon(5e-3));
  CHECK(c.ceiling.reason == "the process was killed");
}

TEST_CASE("ablations: medians, share of the ceiling, and which term binds") {
  struct Row {
    double no_waits_us, no_loads_us;
    const char* binds;
  };
  // The samples take about 800 us a token.
  for (const Row& row : {Row{790, 300, "memory"}, Row{300, 790, "chain"}, Row{790, 780, "both"},
                         Row{500, 400, "both"}, Row{750, 300, "both"}}) {
    INFO(row.no_waits_us << " " << row.no_loads_us);
    CaseReport c = testing::example_case(0);
    c.engines[1].profile = testing::example_profile(row.no_waits_us, row.no_loads_us);
    c = aggregated(c);
    const EngineReport& e = c.engines[1];
    CHECK(*e.profile->full_us.value == Approx(1000 * e.ms_per_tok->median));
    CHECK(*e.profile->no_waits_us.value == Approx(row.no_waits_us));
    CHECK(*e.profile->no_loads_us.value == Approx(row.no_loads_us));
    CHECK(*e.profile->no_waits_fraction.value ==
          Approx(1000 * c.ceiling.ms_per_tok->median / row.no_waits_us));
    CHECK(e.profile->binds == row.binds);
  }
  // A failing engine shows no times, in its ablations either.
  CaseReport c = testing::example_case(0);
  c.engines[1].profile = testing::example_profile(1, 1);
  c.engines[1].verdict = Verdict::kFailToken;
  c = aggregated(c);
  CHECK_FALSE(c.engines[1].profile->full_us.value);
  CHECK_FALSE(c.engines[1].profile->no_waits_us.value);
  CHECK_FALSE(c.engines[1].profile->no_waits_fraction.value);
  CHECK(c.engines[1].profile->binds.empty());
}
