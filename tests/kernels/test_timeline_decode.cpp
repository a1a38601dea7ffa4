// The events of a launch, made by hand, as spans of one clock.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/timeline_decode.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench {
namespace {

// Two blocks whose multiprocessors have clocks of their own: other zeros, and one is 1 % slower. `jitter_ns`: by how
// much their readings are wrong, to and fro. `slowdown`: the share by which both clocks are slower in the second half
// of the launch, in which the last span ends.
RecordedLaunch recorded(int64_t jitter_ns, double slowdown = 0, int64_t end_ns = 110'000) {
  RecordedLaunch launch;
  launch.clock = "two clocks";
  launch.roles = {"block"};
  launch.blocks = 2;
  launch.room = 8;
  const auto cycles = [&](int block, int64_t ns) {
    const double slow = slowdown * static_cast<double>(std::max<int64_t>(ns - 500'000, 0));
    const double counted = (static_cast<double>(ns) - slow) * (block == 0 ? 2 : 1.98);
    return (block == 0 ? 1'000'000 : 77'000'000'000) + static_cast<uint64_t>(std::llround(counted));
  };
  for (int block = 0; block < 2; ++block) {
    for (int64_t ns = 0; ns <= 1'000'000; ns += 250'000) {
      const int64_t off = jitter_ns * ((ns / 250'000 + block) % 2 == 0 ? 1 : -1);
      launch.anchors.push_back(
          {5'000'000'000 + static_cast<uint64_t>(ns + off), cycles(block, ns), 32, 40});
    }
    std::vector<TimelineEvent> events;
    const auto put = [&](int64_t ns, unsigned what, int step) {
      events.push_back({cycles(block, ns), what, step});
    };
    put(100'000, timeline_state(SpanKind::kExchange, Phase::kQkv, 3), 1);
    put(101'000 + block * 500, timeline_state(SpanKind::kBody, kSameSite), 0);
    put(104'000, timeline_state(SpanKind::kHandOff, kSameSite), 0);
    put(104'200, timeline_state(SpanKind::kWeights, kNextSite), 0);
    put(104'500, timeline_state(SpanKind::kExchange, Phase::kLmHead, 4), 1);
    put(end_ns, kTrackEnd, 0);
    launch.counts.push_back(static_cast<unsigned>(events.size()));
    launch.tracks.push_back(events);
  }
  return launch;
}

bool near(double a, double b, double error = 1e-6) { return std::abs(a - b) <= error; }

}  // namespace

TEST_CASE("events of blocks with clocks of their own become spans of one clock", "[timeline]") {
  const Timeline timeline = decode_launch("test", recorded(0));
  REQUIRE(timeline.spans.size() == 10);
  CHECK(timeline.clock == "two clocks");
  CHECK(timeline.quality.step_ns == 32);
  CHECK(near(timeline.quality.error_ns, 0, 1));
  CHECK(timeline.lost == 0);
  for (int block = 0; block < 2; ++block) {
    const TimelineSpan* s = &timeline.spans[static_cast<size_t>(block) * 5];
    const auto is = [&](const TimelineSpan& span, SpanKind kind, Phase phase, int layer,
                        int64_t begin, int64_t end) {
      CHECK(span.block == block);
      CHECK(span.what() == kind);
      CHECK(span.phase == static_cast<int>(phase));
      CHECK(span.layer == layer);
      CHECK(span.step == 1);
      CHECK(std::abs(span.t0_ns - (begin - 100'000)) <= 1);
      CHECK(std::abs(span.t1_ns - (end - 100'000)) <= 1);
    };
    is(s[0], SpanKind::kExchange, Phase::kQkv, 3, 100'000, 101'000 + block * 500);
    is(s[1], SpanKind::kBody, Phase::kQkv, 3, 101'000 + block * 500, 104'000);
    is(s[2], SpanKind::kHandOff, Phase::kQkv, 3, 104'000, 104'200);
    // What asks for weights belongs to the phase that comes, and the LM head to no layer.
    is(s[3], SpanKind::kWeights, Phase::kLmHead, -1, 104'200, 104'500);
    is(s[4], SpanKind::kExchange, Phase::kLmHead, -1, 104'500, 110'000);
  }
  const Timeline jittered = decode_launch("test", recorded(200));
  CHECK(jittered.quality.error_ns > 150);
  CHECK(jittered.quality.error_ns < 300);
  // The lines take most of the readings' error away.
  CHECK(std::abs(jittered.spans[1].t0_ns - timeline.spans[1].t0_ns) < 100);
}

TEST_CASE("a change of the clocks' frequency is all blocks' alike, and no error", "[timeline]") {
  const Timeline timeline = decode_launch("test", recorded(0, 0.1, 900'000));
  CHECK(timeline.quality.error_ns < 1000);
  for (const size_t last : {size_t{4}, size_t{9}}) {
    CHECK(std::abs(timeline.spans[last].t0_ns - 4'500) <= 500);
    CHECK(std::abs(timeline.spans[last].t1_ns - 800'000) <= 500);
  }
  // A change that one block has alone is one.
  RecordedLaunch launch = recorded(0);
  launch.anchors[2].ns += 40'000;
  CHECK(decode_launch("test", launch).quality.error_ns > 10'000);
}

// A launch of many blocks, each with a clock of its own, with readings that are a few nanoseconds wrong. One span ends
// every 20 us.
RecordedLaunch many_blocks(int blocks, int readings, int64_t gap_ns = 400'000) {
  RecordedLaunch launch;
  launch.clock = "many clocks";
  launch.roles = {"block"};
  launch.blocks = blocks;
  launch.room = 1000;
  for (int block = 0; block < blocks; ++block) {
    const auto cycles = [&](int64_t ns) {
      return static_cast<uint64_t>(block) * 7'000'000'000 + static_cast<uint64_t>(ns * 2);
    };
    for (int i = 0; i < readings; ++i) {
      const int64_t ns = i * gap_ns, wrong = (i * 7 + block * 5) % 21 - 10;
      launch.anchors.push_back({5'000'000'000 + static_cast<uint64_t>(ns + wrong), cycles(ns), 32,
                                static_cast<unsigned>(60 + (i + block) % 9)});
    }
    std::vector<TimelineEvent> events;
    for (int64_t ns = 0; ns < (readings - 1) * gap_ns; ns += 20'000)
      events.push_back({cycles(ns), timeline_state(SpanKind::kBody, Phase::kQkv, 0), 0});
    events.push_back({cycles((readings - 1) * gap_ns), kTrackEnd, 0});
    launch.counts.push_back(static_cast<unsigned>(events.size()));
    launch.tracks.push_back(events);
  }
  return launch;
}

// By how much a span begins beside its time at the most.
int64_t worst_of(const Timeline& timeline) {
  int64_t worst = 0;
  for (const TimelineSpan& span : timeline.spans) {
    const int64_t off = (span.t0_ns % 20'000 + 20'000) % 20'000;
    worst = std::max(worst, std::min(off, 20'000 - off));
  }
  return worst;
}

TEST_CASE("readings that took long do not move the clocks, and are told", "[timeline]") {
  const Timeline sound = decode_launch("test", many_blocks(8, 17));
  CHECK(worst_of(sound) < 20);
  CHECK(sound.quality.readings == 8 * 17);
  CHECK(sound.quality.left_out == 0);
  CHECK(sound.quality.error_ns < 30);
  CHECK(near(sound.quality.longest_read_ns, 34, 1));
  RecordedLaunch launch = many_blocks(8, 17);
  // The timer was read up to 3.3 us late in a third of two blocks' readings, among them the first and the last.
  for (const size_t block : {size_t{2}, size_t{5}}) {
    for (size_t i = 0; i < 17; i += 4) {
      TimelineAnchor& anchor = launch.anchors[block * 17 + i];
      anchor.ns += 3'300 - 300 * i / 4;
      anchor.read_cycles = 7'000;
    }
  }
  const Timeline timeline = decode_launch("test", launch);
  CHECK(worst_of(timeline) < 20);
  CHECK(timeline.quality.left_out == 10);
  CHECK(timeline.quality.error_ns < 30);
  CHECK(near(timeline.quality.left_out_error_ns, 3'300, 30));
  CHECK(near(timeline.quality.left_out_read_ns, 3'500, 1));
  CHECK(near(timeline.quality.longest_read_ns, 34, 1));
  // A block all of whose readings took long has no others.
  for (size_t i = 0; i < 17; ++i) launch.anchors[3 * 17 + i].read_cycles = 700;
  CHECK(decode_launch("test", launch).quality.left_out == 10);
  CHECK(worst_of(decode_launch("test", launch)) < 20);
}

TEST_CASE("a reading far from its line does not bend it, and is told", "[timeline]") {
  RecordedLaunch launch = many_blocks(8, 17);
  launch.anchors[4 * 17].ns += 40'000;  // the first, which has the longest lever
  launch.anchors[6 * 17 + 11].ns -= 2'000;
  const Timeline timeline = decode_launch("test", launch);
  CHECK(worst_of(timeline) < 25);
  CHECK(near(timeline.quality.error_ns, 40'000, 50));
  CHECK(near(timeline.quality.error_99_ns, 2'000, 50));
  CHECK(timeline.quality.left_out == 0);
}

// many_blocks() with clocks of uneven pace: the cycles of each block swing around an even count by 8,000, which are 4 us,
// as a sine of the time over `swing_ns`. Block b begins at phase b, so that no two blocks swing together.
RecordedLaunch unsteady_blocks(int readings, int64_t gap_ns, double swing_ns) {
  RecordedLaunch launch = many_blocks(8, readings, gap_ns);
  const auto ahead = [&](int block, int64_t ns) {
    return static_cast<uint64_t>(
        static_cast<int64_t>(8000 * std::sin(static_cast<double>(ns) / swing_ns + block)));
  };
  for (int block = 0; block < 8; ++block) {
    for (int i = 0; i < readings; ++i)
      launch.anchors[static_cast<size_t>(block * readings + i)].cycles += ahead(block, i * gap_ns);
    std::vector<TimelineEvent>& track = launch.tracks[static_cast<size_t>(block)];
    for (size_t i = 0; i < track.size(); ++i)
      track[i].cycles += ahead(block, static_cast<int64_t>(i) * 20'000);
  }
  return launch;
}

TEST_CASE("blocks that change their pace one by one have clocks from reading to reading",
          "[timeline]") {
  RecordedLaunch launch = unsteady_blocks(17, 400'000, 2e6);
  const Timeline timeline = decode_launch("test", launch);
  CHECK(timeline.quality.by_reading);
  CHECK(timeline.quality.line_error_ns > 1000);
  CHECK(timeline.quality.error_ns < 120);
  CHECK(worst_of(timeline) < 60);
  // A timer that steps by more than the blocks deviate cannot tell: its readings' mean is better.
  for (TimelineAnchor& anchor : launch.anchors) anchor.timer_step_ns = 4096;
  CHECK(!decode_launch("test", launch).quality.by_reading);
}

TEST_CASE("a long launch reads its clocks seldomer, and never less than once a step",
          "[timeline]") {
  CHECK(readings_per_step(128, 1) == 128);
  CHECK(readings_per_step(128, 32) == 128);
  CHECK(readings_per_step(128, 1000) == 4);
  CHECK(readings_per_step(128, 100'000) == 1);
  CHECK(readings_per_step(1, 16) == 1);
}

TEST_CASE("a pace that changes between two tokens needs readings between them", "[timeline]") {
  const Timeline seldom = decode_launch("test", unsteady_blocks(17, 400'000, 1e5));
  CHECK(!seldom.quality.by_reading);
  CHECK(seldom.quality.error_ns > 2000);
  const Timeline often = decode_launch("test", unsteady_blocks(16 * 64 + 1, 6'250, 1e5));
  CHECK(often.quality.by_reading);
  CHECK(often.quality.error_ns < 60);
  CHECK(often.quality.error_99_ns < often.quality.error_ns);
  CHECK(worst_of(often) < 50);
}

TEST_CASE("the first steps of a launch whose events found no room are whole", "[timeline]") {
  RecordedLaunch launch = many_blocks(2, 17);
  for (std::vector<TimelineEvent>& track : launch.tracks) {
    for (size_t i = 0; i + 1 < track.size(); ++i) track[i].step = static_cast<int>(i / 20);
  }
  CHECK(decode_launch("test", launch).whole_steps == -1);
  launch.room = 130;  // six steps and a half
  launch.tracks[1].resize(130);
  CHECK(decode_launch("test", launch).whole_steps == 6);
  launch.tracks[1].resize(5);
  CHECK(decode_launch("test", launch).whole_steps == 0);
}

TEST_CASE("events that find no room are counted, and readings that lack are refused",
          "[timeline]") {
  RecordedLaunch launch = recorded(0);
  launch.counts[1] = 20;
  launch.tracks[1].resize(3);
  CHECK(decode_launch("test", launch).lost == 12);
  CHECK(decode_launch("test", launch).spans.size() == 7);
  launch = recorded(0);
  for (size_t i = 1; i < 5; ++i) launch.anchors[i].ns = 0;
  CHECK(testing::thrown_by([&] { decode_launch("test", launch); }).message ==
        "test: timeline: block 0: found 1 readings of its clocks, wanted 2 or more that differ");
  launch = recorded(0);
  launch.tracks[0][1].what = 9;
  CHECK(testing::thrown_by([&] { decode_launch("test", launch); }).message ==
        "test: timeline: block 0: found an event of kind 9 in phase 0, wanted one that kernels "
        "write");
}

}  // namespace mkbench
