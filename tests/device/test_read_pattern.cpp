// The ceiling's search for a pattern, on cards that are formulas, and the order in which steps are
// read.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/read_pattern.h"
#include "harness/device/step_walk.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

using Way = ReadPattern::Way;

// A card with one best number of copies in flight and one best gap of each way.
struct Card {
  double plain_us = 392, bulk_us = 386, ring_us = 390;
  uint32_t bulk_kib = 48, ring_copies = 4;  // in flight where it reads quickest
  double best_share = 0.95;                 // of the gap, in the time of a copy
  double noise = 0;                         // largest share of a sample's time
  uint64_t l2_bytes = 0;
  // What L2 gains in a step, as a share: read back and forth, and with so many MiB kept.
  double turns_gain = 0, kept_gain = 0;
  uint32_t kept_mib = 0;
  std::vector<ReadPattern> asked = {};
  double spent_ms = 0;
  uint64_t draws = 0;

  PatternSpace space() const {
    return {.bulk = true,
            .most_ring_copies = 10,
            .bulk_blocks = 132,
            .ring_blocks = 128,
            .step_bytes = 1'192'099'840,
            .l2_bytes = l2_bytes};
  }
  // Of a step, without noise.
  double true_us(const ReadPattern& p) const {
    if (p.way == Way::kPlain) return plain_us;
    const bool ring = p.way == Way::kRing;
    const double kib = p.plan.ring_bytes() / 1024.0, best = ring ? 16.0 * ring_copies : bulk_kib;
    const double copies = 1'192'099'840.0 / ((ring ? 128 : 132) * p.plan.copy_bytes);
    const double ps = (ring ? ring_us : bulk_us) * 1.02 * 1e6 / copies;
    const double share = p.plan.gap_ps / ps;
    // A gap gains up to 2 %, and one that is longer than a copy's time costs what it is too long.
    const double gain = 0.02 * std::exp(-std::pow((share - best_share) / 0.15, 2));
    return (ring ? ring_us : bulk_us) * (1.02 - gain + 0.01 * std::abs(std::log2(kib / best))) *
           std::max(1.0, share);
  }
  double time(const ReadPattern& p, int steps) {
    asked.push_back(p);
    const double l2 = (p.back_and_forth ? turns_gain : 0) + (p.kept_mib == 0          ? 0
                                                             : p.kept_mib == kept_mib ? kept_gain
                                                                                      : -0.05);
    const double unit = static_cast<double>(splitmix64(++draws) >> 11) * 0x1p-52 - 1;
    const double ms = 1e-3 * steps * true_us(p) * (1 - l2) * (1 + noise * unit);
    spent_ms += ms;
    return ms;
  }
  FoundPattern search() {
    return find_pattern(space(),
                        [this](const ReadPattern& p, int steps) { return time(p, steps); });
  }
};

}  // namespace

TEST_CASE("the search finds the quickest way, copies in flight and gap, in a second or two") {
  for (const double noise : {0.0, 0.002}) {
    for (Card card : {Card{}, Card{.bulk_kib = 64, .best_share = 0.9}, Card{.ring_us = 380},
                      Card{.ring_us = 380, .ring_copies = 6, .best_share = 0.92},
                      Card{.plain_us = 370}, Card{.bulk_us = 700, .ring_us = 700}}) {
      card.noise = noise;
      const FoundPattern found = card.search();
      INFO(pattern_text(found.pattern) << " noise " << noise);
      const double best = std::min({card.plain_us, card.bulk_us, card.ring_us});
      CHECK(card.true_us(found.pattern) < best * 1.002);
      CHECK((found.pattern.way == Way::kPlain) == (best == card.plain_us));
      CHECK((found.pattern.way == Way::kRing) == (best == card.ring_us));
      CHECK(1e3 * found.ms_per_step == Approx(best).epsilon(0.005));
      CHECK(card.spent_ms < 2000);
      CHECK(found.tried > 20);
    }
  }
}

TEST_CASE("twenty searches of one noisy card end within half a per cent of each other") {
  std::vector<double> us;
  for (uint64_t i = 0; i < 20; ++i) {
    Card card{.noise = 0.005, .draws = 1000 * i};
    us.push_back(card.true_us(card.search().pattern));
  }
  const auto [least, most] = std::minmax_element(us.begin(), us.end());
  CHECK(*most / *least < 1.005);
}

TEST_CASE("a peak of one hundredth is found, wherever it lies") {
  // The card of Card without gaps; with one it reads as quickly as the gap lets it down to the share
  // that its memory keeps up with, and below that as without.
  for (const double peak : {0.973, 0.98, 0.987, 0.99}) {
    for (uint64_t i = 0; i < 10; ++i) {
      Card card{.noise = 0.002, .draws = 1000 * i};
      const auto true_us = [&](const ReadPattern& p) {
        ReadPattern at_once = p;
        at_once.plan.gap_ps = 0;
        const double us = card.true_us(at_once);
        if (p.way == Way::kPlain) return us;
        const double copies = 1'192'099'840.0 / (132 * p.plan.copy_bytes);
        const double share = p.plan.gap_ps * copies * 1e-6 / us;
        return share < peak ? us : us * share;
      };
      PatternSpace space = card.space();
      space.most_ring_copies = 0;
      const FoundPattern found = find_pattern(space, [&](const ReadPattern& p, int steps) {
        return card.time(p, steps) * true_us(p) / card.true_us(p);
      });
      const double best = true_us({Way::kBulk, {3, 16 * 1024, 0}}) * peak;
      INFO(pattern_text(found.pattern) << ", peak " << peak << ", draws " << i);
      CHECK(true_us(found.pattern) < best * 1.005);
    }
  }
}

TEST_CASE("only patterns that the card can read are tried, and what fails is left out") {
  Card card;
  card.search();
  for (const ReadPattern& p : card.asked) {
    INFO(pattern_text(p));
    if (p.way == Way::kPlain) continue;
    CHECK((p.plan.stages >= 1 && p.plan.stages <= BulkPlan::kMostStages));
    if (p.way == Way::kRing) CHECK(p.plan.stages <= 10);
    if (p.way == Way::kBulk) CHECK(p.plan.ring_bytes() <= BulkPlan::kMostRingBytes);
  }
  // Before sm_90 there are loads only.
  Card old;
  PatternSpace space = old.space();
  space.bulk = false;
  space.most_ring_copies = 0;
  const auto time = [&](const ReadPattern& p, int steps) { return old.time(p, steps); };
  CHECK(find_pattern(space, time).pattern == ReadPattern{});
  CHECK(std::count(old.asked.begin(), old.asked.end(), ReadPattern{}) == std::ssize(old.asked));
  // The ring fails wherever it is tried, or all do.
  Card broken{.ring_us = 300};
  const FoundPattern found = find_pattern(broken.space(), [&](const ReadPattern& p, int steps) {
    if (p.way == Way::kRing) throw Error(ErrorKind::kRuntime, "ended early");
    return broken.time(p, steps);
  });
  CHECK(found.pattern.way == Way::kBulk);
  const TimePattern none = [](const ReadPattern&, int) -> double {
    throw Error(ErrorKind::kCuda, "the card is lost");
  };
  CHECK_THROWS_WITH(find_pattern(broken.space(), none), "the card is lost");
}

TEST_CASE("what L2 can keep is tried where it is notable, and taken where it is quicker") {
  constexpr uint64_t kNotable = 23'841'997;  // 2 % of a step, rounded up
  const auto uses_l2 = [](const ReadPattern& p) { return p.back_and_forth || p.kept_mib > 0; };
  Card small{.l2_bytes = kNotable - 1, .turns_gain = 0.1};
  small.search();
  CHECK(std::none_of(small.asked.begin(), small.asked.end(), uses_l2));
  Card useless{.l2_bytes = kNotable, .turns_gain = -0.01};
  CHECK_FALSE(uses_l2(useless.search().pattern));
  CHECK(std::any_of(useless.asked.begin(), useless.asked.end(), uses_l2));
  // 96 MiB: half is 48, three quarters are 72.
  for (const uint32_t mib : {48u, 72u}) {
    Card both{.l2_bytes = 96 << 20, .turns_gain = 0.02, .kept_gain = 0.01, .kept_mib = mib};
    const FoundPattern found = both.search();
    CHECK(found.pattern.back_and_forth);
    CHECK(found.pattern.kept_mib == mib);
    CHECK(found.ms_per_step == Approx(1e-3 * 0.97 * both.true_us(found.pattern)).epsilon(1e-6));
  }
  Card keeps{.l2_bytes = 96 << 20, .turns_gain = -0.02, .kept_gain = 0.01, .kept_mib = 48};
  const FoundPattern kept = keeps.search();
  CHECK_FALSE(kept.pattern.back_and_forth);
  CHECK(kept.pattern.kept_mib == 48);
  // The ring's stream has one order, so it is left alone.
  Card ring{.ring_us = 300, .l2_bytes = 96 << 20, .turns_gain = 0.5};
  ring.search();
  CHECK(std::none_of(ring.asked.begin(), ring.asked.end(),
                     [&](const ReadPattern& p) { return p.way == Way::kRing && uses_l2(p); }));
}

TEST_CASE("a pattern's text reads back, whatever follows it, and nothing else does") {
  for (const ReadPattern& p : {ReadPattern{}, ReadPattern{Way::kBulk, {3, 16 * 1024, 352'500}},
                               ReadPattern{Way::kBulk, {12, 4 * 1024, 0}},
                               ReadPattern{Way::kRing, {10, 16 * 1024, 684'007}},
                               ReadPattern{Way::kPlain, {0, 0, 0}, true, 0},
                               ReadPattern{Way::kPlain, {0, 0, 0}, false, 24},
                               ReadPattern{Way::kBulk, {6, 16 * 1024, 1}, true, 48}}) {
    INFO(pattern_text(p));
    CHECK(read_pattern_text(pattern_text(p)) == p);
    CHECK(read_pattern_text(pattern_text(p) + ", the best of 56") == p);
  }
  for (const char* text : {"", "plain loads", "bulk copies", "bulk copies, 3 x 16 KiB in flight",
                           "bulk copies, 3 x 16 KiB in flight, 700 cycles apart",
                           "bulk copies, 3 x 16 KiB in flight, 0.5 ns apart",
                           "2 x 16 KiB in flight, 0.000 ns apart"}) {
    INFO(text);
    CHECK_FALSE(read_pattern_text(text));
  }
}

TEST_CASE(
    "two patterns are alike where their gaps differ by half a per cent at most, and nothing else") {
  const std::string one = "bulk copies, 6 x 16 KiB in flight, 675.971 ns apart, the best of 56";
  CHECK(alike_patterns(one, one));
  CHECK(alike_patterns(one, "bulk copies, 6 x 16 KiB in flight, 674.100 ns apart, the best of 80"));
  CHECK(alike_patterns("plain loads of 16 bytes, the best of 1", "plain loads of 16 bytes"));
  for (const char* other :
       {"bulk copies, 6 x 16 KiB in flight, 671.000 ns apart",
        "bulk copies, 6 x 16 KiB in flight, 0.000 ns apart",
        "bulk copies, 5 x 16 KiB in flight, 675.971 ns apart",
        "bulk copies, 6 x 8 KiB in flight, 675.971 ns apart",
        "the ring's copies without waits, 6 x 16 KiB in flight, 675.971 ns apart",
        "bulk copies, 6 x 16 KiB in flight, 675.971 ns apart, back and forth",
        "bulk copies, 6 x 16 KiB in flight, 675.971 ns apart, 24 MiB kept in L2",
        "plain loads of 16 bytes", ""}) {
    INFO(other);
    CHECK_FALSE(alike_patterns(one, other));
    CHECK_FALSE(alike_patterns(other, one));
  }
}

TEST_CASE("the finalists are timed by long samples, in turns") {
  Card card;
  std::vector<std::pair<ReadPattern, double>> long_samples;
  find_pattern(card.space(), [&](const ReadPattern& p, int steps) {
    const double ms = card.time(p, steps);
    if (ms >= kLongSampleMs) long_samples.emplace_back(p, ms);
    return ms;
  });
  constexpr size_t kFinalists = 8;
  REQUIRE(long_samples.size() == 5 * kFinalists);
  for (size_t i = kFinalists; i < long_samples.size(); ++i)
    CHECK(long_samples[i].first == long_samples[i - kFinalists].first);
  CHECK(steps_for(20, 0.386) == 52);
  CHECK(steps_for(20, 40) == 1);
  CHECK(steps_for(20, 0) == 1);
}

TEST_CASE("the walks of a grid read every chunk of every step once, steps one after the other") {
  const bool back_and_forth = GENERATE(false, true);
  for (const uint32_t workers : {1u, 3u, 132u, 1000u}) {
    for (const StepBytes bytes : {StepBytes{100'000, 0, 3}, StepBytes{16'384, 4096, 7},
                                  StepBytes{1, 0, 5}, StepBytes{1'000'000, 114'688, 4}}) {
      constexpr uint32_t kChunk = 4096;
      std::map<std::pair<uint32_t, uint32_t>, int> read;
      for (uint32_t worker = 0; worker < workers; ++worker) {
        uint32_t before = 0;
        for (StepWalk walk(bytes, back_and_forth, kChunk, worker, workers); !walk.done();
             walk.next()) {
          ++read[{walk.step(), walk.chunk()}];
          CHECK(walk.step() >= before);
          before = walk.step();
        }
      }
      INFO(workers << " workers, first step of " << bytes.first);
      uint64_t chunks = 0, all = 0;
      for (uint32_t t = 0; t < bytes.steps; ++t) {
        chunks += (bytes.of_step(t) + kChunk - 1) / kChunk;
        all += bytes.first + t * bytes.growth;
      }
      CHECK(read.size() == chunks);
      CHECK(bytes.all() == all);
      for (const auto& [place, times] : read) {
        CHECK(times == 1);
        CHECK(uint64_t{place.second} * kChunk < bytes.of_step(place.first));
      }
    }
  }
}

TEST_CASE("back and forth, a step begins where the one before ended") {
  std::vector<uint32_t> order;
  // 4, 4 and 5 chunks.
  for (StepWalk walk({4 * 4096 - 100, 100, 3}, true, 4096, 0, 1); !walk.done(); walk.next())
    order.push_back(walk.chunk());
  CHECK(order == std::vector<uint32_t>{0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3, 4});
}

TEST_CASE("the pin rate of a card is two words a clock over its bus") {
  CHECK(pin_rate(2'619'000, 5120) == Approx(3352).epsilon(1e-4));  // H100
  CHECK(pin_rate(3'201'000, 6144) == Approx(4917).epsilon(1e-4));  // H200
  CHECK(pin_rate(0, 5120) == 0);
  CHECK(pin_rate(2'619'000, 0) == 0);
}
