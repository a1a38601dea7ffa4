// The events of a launch, made by hand, as spans of one clock.
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/timeline_decode.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

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

// What `work` throws; empty where it throws nothing.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

bool near(double a, double b, double error = 1e-6) { return std::abs(a - b) <= error; }

}  // namespace

TEST_CASE("events of blocks with clocks of their own become spans of one clock", "[timeline]") {
  const Timeline timeline = decode_launch("test", recorded(0));
  REQUIRE(timeline.spans.size() == 10);
  CHECK(timeline.clock == "two clocks");
  CHECK(timeline.clock_step_ns == 32);
  CHECK(near(timeline.clock_error_ns, 0, 1));
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
  CHECK(jittered.clock_error_ns > 150);
  CHECK(jittered.clock_error_ns < 300);
  // The lines take most of the readings' error away.
  CHECK(std::abs(jittered.spans[1].t0_ns - timeline.spans[1].t0_ns) < 100);
}

TEST_CASE("a change of the clocks' frequency is all blocks' alike, and no error", "[timeline]") {
  const Timeline timeline = decode_launch("test", recorded(0, 0.1, 900'000));
  CHECK(timeline.clock_error_ns < 1000);
  for (const size_t last : {size_t{4}, size_t{9}}) {
    CHECK(std::abs(timeline.spans[last].t0_ns - 4'500) <= 500);
    CHECK(std::abs(timeline.spans[last].t1_ns - 800'000) <= 500);
  }
  // A change that one block has alone is one.
  RecordedLaunch launch = recorded(0);
  launch.anchors[2].ns += 40'000;
  CHECK(decode_launch("test", launch).clock_error_ns > 10'000);
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
  CHECK(error_of([&] { decode_launch("test", launch); }) ==
        "test: timeline: block 0: found 1 readings of its clocks, wanted 2 or more that differ");
  launch = recorded(0);
  launch.tracks[0][1].what = 9;
  CHECK(error_of([&] { decode_launch("test", launch); }) ==
        "test: timeline: block 0: found an event of kind 9 in phase 0, wanted one that kernels "
        "write");
}

}  // namespace mkbench
