// Blocks that the state of the card drops: by telemetry of scripted engines' samples.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/flow/block_conditions.h"
#include "harness/judge/conclude.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;

Telemetry at_clock(double mhz) {
  Telemetry card;
  card.readings = 1;
  card.sm_clock_mhz = mhz;
  return card;
}

Telemetry throttled(const char* reason) {
  Telemetry card = at_clock(1980);
  card.limits = card.throttled = reason;
  return card;
}

Sample sample_of(const char* engine, int block, const Telemetry& card) {
  Sample sample;
  sample.engine = engine;
  sample.block = block;
  sample.card = card;
  return sample;
}

// A case on a card whose state is `card`, by engine and number of its sample, from 1; and the late id
// of every timed call.
struct CardBench : Bench {
  std::function<Telemetry(const std::string& engine, int sample)> card = [](auto&&...) {
    return at_clock(1980);
  };
  std::map<std::string, int> taken;
  bool watched = false;
  std::vector<bool> watched_blocks;

  CardBench() {
    job.device = "cuda";
    job.blocks = job.max_blocks = 10;
    services.ratchet = [](const RatchetKey&) { return std::nullopt; };
    services.trace = [](Engine&, int) { return LaunchTrace{}; };
    services.watch_card = [this](bool on) {
      watched = on;
      watched_blocks.push_back(on);
    };
    services.timed = [this](Engine& engine, const std::function<void()>& call) {
      TimedCall timed = time_call(services.now, call);
      const std::string name = engine.capabilities().name;
      if (watched) timed.card = card(name, ++taken[name]);
      return timed;
    };
  }
};

std::vector<int> blocks_of(const std::vector<Sample>& samples) {
  std::vector<int> blocks;
  for (const Sample& s : samples) blocks.push_back(s.block);
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

const std::vector<int> kTen = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST_CASE("on a quiet card no block is dropped") {
  CardBench bench;
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    CHECK(blocks_of(e.samples) == kTen);
    CHECK(e.dropped_samples.empty());
    CHECK((e.card.dropped == 0 && e.card.share == 0 && e.card.sm_clock_mhz == 1980.0));
    CHECK(e.card_reason.empty());
  }
}

TEST_CASE("a throttled block is dropped for all engines, run again, and counted") {
  CardBench bench;
  bench.card = [](const std::string& engine, int sample) {
    return engine == "kernel" && sample == 4 ? throttled("power cap") : at_clock(1980);
  };
  const CaseReport c = bench.run();
  const EngineReport &kernel = engine_of(c, "kernel"), &eager = engine_of(c, "eager");
  for (const EngineReport* e : {&kernel, &eager}) {
    CHECK(e->verdict == Verdict::kPass);
    CHECK(blocks_of(e->samples) == kTen);
    REQUIRE(e->dropped_samples.size() == 1);
    CHECK(e->dropped_samples[0].block == 3);
    CHECK(e->ms_per_tok->count == 10);
    CHECK(std::all_of(e->samples.begin(), e->samples.end(),
                      [](const Sample& s) { return s.valid && s.dropped_for.empty(); }));
  }
  CHECK(kernel.dropped_samples[0].dropped_for == "power cap");
  CHECK((kernel.card.dropped == 1 && kernel.card.with_others == 0 && kernel.card.unfit == 0));
  CHECK(kernel.card.share == Approx(1.0 / 11));
  REQUIRE(kernel.card.reasons.size() == 1);
  CHECK((kernel.card.reasons[0].reason == "power cap" && kernel.card.reasons[0].blocks == 1));
  CHECK(kernel.throttle_reasons == std::vector<std::string>{"power cap"});
  CHECK(eager.dropped_samples[0].dropped_for == kOtherEngine);
  CHECK((eager.card.dropped == 0 && eager.card.with_others == 1 && eager.card.share == 0));
  REQUIRE(c.comparisons.size() == 1);
  CHECK(c.comparisons[0].label.empty());
  // The block's second run has a late id of its own: its engines have seen the first one.
  const auto of_block = [](const EngineReport& e) {
    return std::find_if(e.samples.begin(), e.samples.end(),
                        [](const Sample& s) { return s.block == 3; })
        ->late_id;
  };
  CHECK(of_block(kernel) == of_block(eager));
  CHECK(of_block(kernel) != kernel.dropped_samples[0].late_id);
}

TEST_CASE("the ceiling's sample of a dropped block is dropped too, whatever its own card shows") {
  CardBench bench;
  bench.job.no_ceiling.clear();
  bench.add_ceiling();
  bench.card = [](const std::string& engine, int sample) {
    const bool bad = engine == kCeilingName || (engine == "kernel" && sample == 4);
    return bad ? throttled("power cap") : at_clock(1980);
  };
  const CaseReport c = bench.run();
  CHECK(blocks_of(c.ceiling.samples) == kTen);
  CHECK(c.ceiling.samples.back().block == 9);
  const auto third = std::find_if(c.ceiling.samples.begin(), c.ceiling.samples.end(),
                                  [](const Sample& s) { return s.block == 3; });
  const EngineReport& kernel = engine_of(c, "kernel");
  REQUIRE(kernel.dropped_samples.size() == 1);
  CHECK(third->start_ms > kernel.dropped_samples[0].start_ms + 20);  // after the first run's
  int taken = 0;
  for (const CaseEvent& event : bench.messages) {
    const auto* sample = std::get_if<SampleTaken>(&event);
    taken += sample != nullptr && sample->engine == kCeilingName ? 1 : 0;
  }
  CHECK(taken == 11);
  CHECK(kernel.share.value.has_value());
}

TEST_CASE("a block more than 3 % below the engine's own median clock is dropped, also afterwards") {
  CardBench bench;
  bench.card = [](const std::string& engine, int sample) {
    if (engine == "eager") return at_clock(1500);  // slow in all its samples
    // The first block looks right until faster ones have followed.
    return at_clock(sample == 1 ? 1900 : sample == 6 ? 1921 : 1980);
  };
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  REQUIRE(kernel.dropped_samples.size() == 1);
  CHECK(kernel.dropped_samples[0].block == 0);
  CHECK(kernel.dropped_samples[0].dropped_for == kSlowClockReason);
  CHECK(blocks_of(kernel.samples) == kTen);
  CHECK(engine_of(c, "eager").card.dropped == 0);
}

TEST_CASE("over 20 % dropped blocks make every comparison of the engine INCONCLUSIVE") {
  for (const int bad : {2, 3}) {
    CardBench bench;
    bench.job.engines.push_back({.name = "other", .asked = "other", .candidate = true});
    bench.card = [bad](const std::string& engine, int sample) {
      return engine == "kernel" && sample > 5 && sample <= 5 + bad ? throttled("thermal (software)")
                                                                   : at_clock(1980);
    };
    CaseReport c = bench.run();
    const EngineReport& kernel = engine_of(c, "kernel");
    CHECK(kernel.card.dropped == bad);
    CHECK(kernel.card.share == Approx(bad / (10.0 + bad)));
    CHECK(blocks_of(kernel.samples) == kTen);
    // The bench's engines run on a CPU; on a GPU their times are compared.
    for (EngineReport& e : c.engines) e.device = "cuda:0";
    for (EngineReport& e : c.engines) {
      for (Sample& s : e.samples) {
        s.times.host_ms = e.name == "eager" ? 8 : 1 + 1e-3 * s.block;
        s.process = s.block / 2;  // one process gives no verdict
      }
    }
    aggregate(c, 0.95, 1, false);
    REQUIRE(c.comparisons.size() == 3);
    CHECK(c.comparisons[0].candidate == "kernel");
    CHECK(c.comparisons[0].verdict == (bad == 3 ? "INCONCLUSIVE" : "FASTER"));
    CHECK(c.comparisons[0].label == (bad == 3 ? "23 % of kernel's blocks dropped" : ""));
    CHECK(c.comparisons[0].verdict_reason == c.comparisons[0].label);  // not the margin
    CHECK(c.comparisons[0].speedup.value);
    CHECK(c.comparisons[1].verdict == "FASTER");
    CHECK((c.comparisons[2].baseline == "kernel" && c.comparisons[2].candidate == "other"));
    CHECK(c.comparisons[2].verdict == (bad == 3 ? "INCONCLUSIVE" : "SAME"));
  }
}

TEST_CASE("a card that is always throttled ends, with a count of what stands all the same") {
  CardBench bench;
  bench.card = [](auto&&...) { return throttled("power cap"); };
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    CHECK(e.verdict == Verdict::kPass);
    CHECK(blocks_of(e.samples) == kTen);
    CHECK(e.card.unfit == 10);
    CHECK(e.card.share > 0.2);
    CHECK(e.dropped_samples.size() <= 6);
  }
}

TEST_CASE("a wrong sample in a block that is dropped stays, and fails its engine") {
  CardBench bench;
  bench.job.time_anyway = true;
  bench.references.clear();
  bench.references.push_back(testing::scripted_reference());
  // Launches are counted in every sample, also where the truth scores the ids afterwards.
  bench.scripts["kernel"].one_launch = true;
  bench.scripts["kernel"].extra_launch = [](int decode) { return decode == 4; };
  bench.card = [](const std::string& engine, int sample) {
    return engine == "eager" && sample == 1 ? throttled("power cap") : at_clock(1980);
  };
  const CaseReport c = bench.run();
  const EngineReport& kernel = engine_of(c, "kernel");
  CHECK(kernel.verdict == Verdict::kIntegrity);
  REQUIRE(kernel.samples.size() == 1);
  CHECK(holds(kernel.samples[0].invalid_reason, "2 launches"));
  CHECK(kernel.dropped_samples.empty());
  CHECK(blocks_of(engine_of(c, "eager").samples) == kTen);
  CHECK(engine_of(c, "eager").card.dropped == 1);
}

TEST_CASE("ids of dropped samples are scored too") {
  CardBench bench;
  bench.card = [](const std::string& engine, int sample) {
    return engine == "kernel" && sample == 2 ? throttled("power cap") : at_clock(1980);
  };
  // Decode 8 is the second sample's (1 and 2 judge, 3 warms up, 4 to 7 are the first sample's).
  bench.scripts["kernel"].wrong = [](int decode, int position) {
    return decode == 8 && position == 2;
  };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").dropped_samples.size() == 1);
  CHECK(engine_of(c, "kernel").verdict == Verdict::kFailToken);
}

TEST_CASE("without readings nothing is dropped, and the report says why there is no energy") {
  CardBench bench;
  bench.services.timed = [&](Engine&, const std::function<void()>& call) {
    return time_call(bench.services.now, call);
  };
  const CaseReport none = bench.run();
  CHECK(engine_of(none, "kernel").samples.size() == 10);
  CHECK_FALSE(engine_of(none, "kernel").card.energy_j.value);
  CHECK(engine_of(none, "kernel").card.energy_j.reason ==
        "the driver (NVML) told nothing of the card");
  CardBench off;
  off.job.telemetry = TelemetryMode::kOff;
  const CaseReport c = off.run();
  CHECK(off.taken.empty());
  CHECK(engine_of(c, "kernel").card.energy_j.reason == "--telemetry off");
}

TEST_CASE("alternating blocks are watched alike in every place and order") {
  int watched = 0, watched_first = 0;
  std::map<bool, int> forward;  // abba: blocks 0 and 3 of four run forward
  for (int block = 0; block < 8; ++block) {
    const bool on = is_watched(TelemetryMode::kAlternate, block);
    watched += on ? 1 : 0;
    CHECK(on != is_watched(TelemetryMode::kAlternate, block % 2 == 0 ? block + 1 : block - 1));
    if (block % 2 == 0 && on) ++watched_first;
    if (block % 4 == 0 || block % 4 == 3) ++forward[on];
    CHECK(is_watched(TelemetryMode::kOn, block));
    CHECK_FALSE(is_watched(TelemetryMode::kOff, block));
  }
  CHECK((watched == 4 && watched_first == 2));
  CHECK((forward[true] == 2 && forward[false] == 2));
  CardBench bench;
  bench.job.telemetry = TelemetryMode::kAlternate;
  const CaseReport c = bench.run();
  // Before the blocks the overhead of clocks is measured, watched.
  CHECK(bench.watched_blocks ==
        std::vector<bool>{true, true, false, true, false, false, true, false, true, true, false});
  CHECK(engine_of(c, "kernel").card.watching_costs.value);
}

TEST_CASE("drops end after two blocks and a third of those that stand") {
  BlockConditions conditions;
  int drops = 0;
  for (int block = 0; block < 12; ++block) {
    conditions.take(sample_of("a", block, throttled("power cap")));
    while (const auto unfit = conditions.drop_one()) {
      CHECK((unfit->engine == "a" && unfit->reason == "power cap"));
      ++drops;
      conditions.take(sample_of("a", unfit->block, throttled("power cap")));
      REQUIRE(drops < 100);
    }
  }
  CHECK(drops == 5);
  // Without a clock, or with one block alone, there is no median to be below.
  BlockConditions few;
  few.take(sample_of("a", 0, at_clock(900)));
  few.take(sample_of("b", 0, Telemetry{}));
  CHECK_FALSE(few.drop_one());
}

}  // namespace
}  // namespace mkbench
