// What is made of a timeline's spans: a summary, a trace and a picture. All arrays are made by hand, so that what
// must come out is known.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <tuple>

#include "harness/measure/timeline_summary.h"
#include "harness/report/timeline_svg.h"
#include "harness/report/timeline_text.h"
#include "harness/report/timeline_trace.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

constexpr int kBlocks = 4, kSteps = 2, kLayers = 3, kSlow = 2;

// In one execution of a phase (ns) each block waits for the exchange and for weights, works, and hands over. The
// slow block works longer, but for the last layer of each step, where block 0 does.
constexpr int64_t kExchangeNs = 1000, kWeightsNs = 500, kBodyNs = 2000, kHandOffNs = 250,
                  kSlowNs = 3000;

class HandMade {
 public:
  HandMade() {
    timeline_.roles = {"consumers", "loader"};
    timeline_.phases = {"first", "second", "token"};
    for (int step = 0; step < kSteps; ++step) {
      for (int layer = 0; layer < kLayers; ++layer) {
        execute(step, layer, 0);
        execute(step, layer, 1);
      }
      execute(step, -1, 2);
    }
    std::stable_sort(timeline_.spans.begin(), timeline_.spans.end(),
                     [](const TimelineSpan& a, const TimelineSpan& b) {
                       return std::tie(a.block, a.role, a.t0_ns) <
                              std::tie(b.block, b.role, b.t0_ns);
                     });
  }

  Timeline timeline() const { return timeline_; }

 private:
  void execute(int step, int layer, int phase) {
    const int slow = layer == kLayers - 1 ? 0 : kSlow;
    int64_t last = 0;
    for (int block = 0; block < kBlocks; ++block) {
      // A block waits from its own end on.
      int64_t at = ends_[block];
      const auto put = [&](SpanKind kind, int64_t ns, int role = 0) {
        timeline_.spans.push_back({at, at + ns, block, layer, step, static_cast<int16_t>(phase),
                                   static_cast<int8_t>(role), static_cast<int8_t>(kind)});
        if (role == 0) at += ns;
      };
      put(SpanKind::kRoom, 100, 1);
      put(SpanKind::kExchange, now_ + kExchangeNs - at);
      put(SpanKind::kWeights, kWeightsNs);
      put(SpanKind::kBody, kBodyNs + (block == slow ? kSlowNs : 0));
      put(SpanKind::kHandOff, kHandOffNs);
      ends_[block] = at;
      last = std::max(last, at);
    }
    now_ = last;
  }

  Timeline timeline_;
  int64_t now_ = 0, ends_[kBlocks] = {};
};

constexpr double kPathUs = (kExchangeNs + kWeightsNs + kBodyNs + kSlowNs + kHandOffNs) / 1e3;

bool near(double a, double b, double error = 1e-6) { return std::abs(a - b) <= error; }

}  // namespace

TEST_CASE("a summary of known shares", "[timeline]") {
  const TimelineSummary s = summarize_timeline(HandMade().timeline(), kSteps);
  CHECK(s.blocks == kBlocks);
  CHECK(s.layers == kLayers);
  // Consumers: three phases, then the loader's three.
  REQUIRE(s.phases.size() == 6);
  const KindTimes& first = s.phases[0].us;
  CHECK(s.phases[0].role == "consumers");
  CHECK(s.phases[0].phase == "first");
  // Three of four blocks also wait for the slow one of the phase before, but in the first execution of all.
  const double for_slow = (kSteps * kLayers - 1) * 0.75 * kSlowNs / kSteps;
  CHECK(near(first.exchange, (kLayers * kExchangeNs + for_slow) / 1e3));
  CHECK(near(first.weights, kLayers * kWeightsNs / 1e3));
  CHECK(near(first.hand_off, kLayers * kHandOffNs / 1e3));
  // One block of four is slow.
  CHECK(near(first.body, kLayers * (kBodyNs + kSlowNs / 4.0) / 1e3));
  CHECK(s.phases[3].role == "loader");
  CHECK(near(s.phases[3].us.room, kLayers * 0.1));
  CHECK(near(s.phases[3].us.total(), kLayers * 0.1));
}

TEST_CASE("the critical path leads through the slow block, which is named", "[timeline]") {
  const TimelineSummary s = summarize_timeline(HandMade().timeline(), kSteps);
  REQUIRE(s.path.size() == 3);
  for (const PathPart& part : s.path) {
    CHECK(near(part.us.body, (kBodyNs + kSlowNs) / 1e3));
    CHECK(near(part.us.exchange, kExchangeNs / 1e3));
    CHECK(near(part.us.weights, kWeightsNs / 1e3));
    CHECK(near(part.us.hand_off, kHandOffNs / 1e3));
    CHECK(near(part.us.other, 0));
    CHECK(part.last_block == kSlow);
    CHECK(near(part.spread_us, kSlowNs / 1e3));
  }
  CHECK(s.path[0].executions == kSteps * kLayers);
  CHECK(s.path[2].executions == kSteps);
  CHECK_FALSE(s.path[2].per_layer);
  CHECK(near(s.path[0].last_share, 2.0 / 3));
  CHECK(near(s.path[2].last_share, 1));
  CHECK(near(s.layer_us, 2 * kPathUs));
  CHECK(near(s.step_us, (2 * kLayers + 1) * kPathUs));
  CHECK(s.slowest_block == kSlow);
  CHECK(near(s.slowest_share, 10.0 / 14));
  REQUIRE(s.frames_us.size() == kSteps);
  CHECK(near(s.frames_us[1], 2 * s.step_us));
}

TEST_CASE("time between spans is no kind's", "[timeline]") {
  Timeline timeline = HandMade().timeline();
  std::erase_if(timeline.spans,
                [](const TimelineSpan& s) { return s.what() == SpanKind::kWeights; });
  const TimelineSummary s = summarize_timeline(timeline, kSteps);
  CHECK(near(s.path[0].us.other, kWeightsNs / 1e3));
  CHECK(near(s.path[0].us.weights, 0));
  CHECK(near(s.layer_us, 2 * kPathUs));
}

TEST_CASE("spans beyond the decode, without a step, or none at all", "[timeline]") {
  Timeline timeline = HandMade().timeline();
  CHECK(summarize_timeline(timeline, 1).path[0].executions == kLayers);
  for (TimelineSpan& span : timeline.spans) span.step = span.layer = -1;
  const TimelineSummary unknown = summarize_timeline(timeline, kSteps);
  CHECK(unknown.path.empty());
  CHECK(near(unknown.phases[0].us.weights, kLayers * kWeightsNs / 1e3));
  CHECK(timeline_svg(timeline, kSteps, "none").empty());
  CHECK(summarize_timeline({}, kSteps).phases.empty());
  TimelineReport report;
  report.summary = unknown;
  CHECK(timeline_markdown(report).find("No critical path") != std::string::npos);
}

TEST_CASE("what the report says of the hand-made timeline", "[timeline]") {
  TimelineReport report;
  report.title = "ring on cuda (synthetic d=512 n=2)";
  report.resolved = "ring";
  report.trace = "t.trace.json";
  report.summary = summarize_timeline(HandMade().timeline(), kSteps);
  report.cost = {{1.0, 1.1, 0.9}, {1.01, 1.015, 1.0}, "a clock"};
  const std::string text = timeline_markdown(report);
  const auto says = [&](const std::string& line) { return text.find(line) != std::string::npos; };
  CHECK(
      says("(consumers): body 41.7 %, waits for the exchange 46.9 %, waits for weights 7.6 %, "
           "hand-off 3.8 %"));
  CHECK(says(
      "critical path: 47.2 us a token, 13.50 us a layer; the longest part is first, 42.9 % of it"));
  CHECK(says("slowest block: 2, the last of 4 in 71.4 % of all phases (by chance 25.0 %)"));
  CHECK(
      says("| first | 6.75 | 5.00 | 1.00 | 0.50 | 0.25 | 0.00 | 0.00 | block 2, 66.7 % of 6 | 3.00 "
           "us |"));
  CHECK(says(
      "recorded decodes take +1.00 % (1.0100 ms against 1.0000, medians of 3 and 3, a clock)\n"));
  CHECK_FALSE(says("are uncertain"));
  report.quality.error_99_ns = 1400;  // of 6.75 us
  CHECK(timeline_markdown(report).find(
            "is off by over 1.40 us, and the path's shortest phase takes 6.75 us: comparisons of "
            "blocks") != std::string::npos);
  report.cost.with_ms = {1.03};
  CHECK(cost_line(report.cost).find("over 2 %, so the recording itself moves what it shows") !=
        std::string::npos);
  report.cost.clock = kClockOfCall;
  CHECK(cost_line(report.cost).find("around the call): the call hands the spans over too") !=
        std::string::npos);
}

TEST_CASE("a trace holds a process a block and the tokens as frames", "[timeline]") {
  const Timeline timeline = HandMade().timeline();
  const TimelineSummary s = summarize_timeline(timeline, kSteps);
  std::stringstream out;
  write_trace(out, timeline, {"by \"hand\"", s.frames_us}, 0);
  const nlohmann::json trace = nlohmann::json::parse(out.str());
  CHECK(trace["otherData"]["title"] == "by \"hand\"");
  size_t spans = 0, frames = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    if (event["pid"] == 0) {
      ++frames;
      continue;
    }
    ++spans;
  }
  CHECK(spans == timeline.spans.size());
  CHECK(frames == kSteps);
  CHECK(first_traced_step(timeline, kSteps, 1'000) == 0);
  CHECK(first_traced_step(timeline, kSteps, 150) == 1);
  CHECK(first_traced_step(timeline, kSteps, 1) == 1);
}

TEST_CASE("a trace of the last steps alone", "[timeline]") {
  const Timeline timeline = HandMade().timeline();
  std::stringstream out;
  write_trace(out, timeline, {"last", summarize_timeline(timeline, kSteps).frames_us}, 1);
  size_t spans = 0, frames = 0;
  const nlohmann::json trace = nlohmann::json::parse(out);
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++(event["pid"] == 0 ? frames : spans);
  }
  CHECK(2 * spans == timeline.spans.size());
  CHECK(frames == 1);
}

TEST_CASE("what a report says of lost events, without layers, and without a cost", "[timeline]") {
  Timeline timeline = HandMade().timeline();
  timeline.lost = 1234;
  for (TimelineSpan& span : timeline.spans) span.layer = -1;
  TimelineReport report;
  CHECK(headlines(report) == std::vector<std::string>{"no span was recorded"});
  CHECK(cost_line(report.cost) == "what the recording costs was not measured");
  report.summary = summarize_timeline(timeline, kSteps);
  CHECK(headlines(report).front() ==
        "the recording had no room for at least 1,234 events: the figures cover the first 2 of 2 "
        "tokens, which are whole");
  CHECK(timeline_svg(timeline, kSteps, "t").find("token ") != std::string::npos);
}

TEST_CASE("means are of the tokens that are whole", "[timeline]") {
  const TimelineSummary all = summarize_timeline(HandMade().timeline(), kSteps);
  Timeline timeline = HandMade().timeline();
  // Half of the second token is lost, of one block.
  std::erase_if(timeline.spans, [](const TimelineSpan& s) {
    return s.block == 1 && s.step == 1 && (s.layer < 0 || s.layer > 0);
  });
  timeline.lost = 20;
  timeline.whole_steps = 1;
  const TimelineSummary s = summarize_timeline(timeline, kSteps);
  CHECK((s.steps == kSteps && s.whole_steps == 1));
  REQUIRE(s.path.size() == all.path.size());
  CHECK(s.path[0].executions == kLayers);
  CHECK(near(s.step_us, all.step_us));
  CHECK(near(s.layer_us, all.layer_us));
  CHECK(near(s.phases[0].us.body, all.phases[0].us.body));
  CHECK(s.frames_us.size() == 1);
  timeline.whole_steps = 0;
  TimelineReport report;
  report.summary = summarize_timeline(timeline, kSteps);
  CHECK(headlines(report) ==
        std::vector<std::string>{"the recording had no room for at least 20 events, and no token "
                                 "is recorded whole: decode fewer (--n-gen)"});
  CHECK(timeline_markdown(report).find("Where the time goes") == std::string::npos);
}

TEST_CASE("of more spans than fit the last steps are left out, of all blocks", "[timeline]") {
  const Timeline whole = HandMade().timeline();
  const auto half = static_cast<int64_t>(whole.spans.size() / 2);
  Timeline timeline = whole;
  keep_first_steps(timeline, 2 * half);
  CHECK((timeline.whole_steps == -1 && timeline.lost == 0));
  keep_first_steps(timeline, 2 * half - 1);
  CHECK(timeline.whole_steps == 1);
  CHECK(timeline.lost == half);
  CHECK(static_cast<int64_t>(timeline.spans.size()) == half);
  CHECK(summarize_timeline(timeline, kSteps).blocks == kBlocks);
  timeline = whole;
  for (TimelineSpan& span : timeline.spans) span.step = -1;
  keep_first_steps(timeline, half);
  CHECK(static_cast<int64_t>(timeline.spans.size()) <= half);
  CHECK(timeline.lost + static_cast<int64_t>(timeline.spans.size()) == 2 * half);
  CHECK(timeline.whole_steps == 0);
}

TEST_CASE("overlapping spans count each moment once, for the one that began last", "[timeline]") {
  const TimelineSummary apart = summarize_timeline(HandMade().timeline(), kSteps);
  CHECK(apart.overlapping == 0);
  Timeline timeline = HandMade().timeline();
  // Each wait for the exchange ends late: behind the wait for weights, and 0.1 us into the body.
  for (TimelineSpan& span : timeline.spans) {
    if (span.role == 0 && span.what() == SpanKind::kExchange) span.t1_ns += kWeightsNs + 100;
  }
  const TimelineSummary s = summarize_timeline(timeline, kSteps);
  CHECK(s.overlapping == 2 * kBlocks * kSteps * (2 * kLayers + 1));
  CHECK(near(s.step_us, apart.step_us));
  for (size_t i = 0; i < s.path.size(); ++i) {
    CHECK(near(s.path[i].us.exchange, apart.path[i].us.exchange));
    CHECK(near(s.path[i].us.weights, apart.path[i].us.weights));
    CHECK(near(s.path[i].us.body, apart.path[i].us.body));
    CHECK(near(s.path[i].us.total(), apart.path[i].us.total()));
  }
  CHECK(near(s.phases[0].us.total(), apart.phases[0].us.total()));
  // A span around all others of its part has what they leave.
  timeline = HandMade().timeline();
  std::erase_if(timeline.spans,
                [](const TimelineSpan& one) { return one.what() == SpanKind::kWeights; });
  const int64_t end = static_cast<int64_t>(1000 * apart.frames_us.back());
  for (int block = kBlocks - 1; block >= 0; --block) {
    const auto first = std::find_if(timeline.spans.begin(), timeline.spans.end(),
                                    [&](const TimelineSpan& one) { return one.block == block; });
    timeline.spans.insert(first,
                          {0, end, block, -1, 0, 0, 0, static_cast<int8_t>(SpanKind::kWeights)});
  }
  const TimelineSummary around = summarize_timeline(timeline, kSteps);
  CHECK(near(around.path[1].us.weights, apart.path[1].us.weights));
  CHECK(near(around.path[1].us.body, apart.path[1].us.body));
  CHECK(near(around.path[1].us.other, 0));
  TimelineReport report;
  report.summary = around;
  CHECK(headlines(report).back().find("spans overlap with an earlier one of their part") !=
        std::string::npos);
}

TEST_CASE("the picture shows one layer of every block", "[timeline]") {
  const std::string svg = timeline_svg(HandMade().timeline(), kSteps, "a < b");
  CHECK(svg.find("a &lt; b: layer") != std::string::npos);
  CHECK(svg.find("13.50 us") != std::string::npos);
  CHECK(svg.find("all parts of block") != std::string::npos);
  CHECK(svg.find(">loader</text>") != std::string::npos);
  // Below the legend each bar is of a span in the window, and cut off at its ends.
  const std::regex rectangle("<rect x=\"([^\"]*)\" y=\"([^\"]*)\" width=\"([^\"]*)\"");
  int bars = 0;
  for (std::sregex_iterator at(svg.begin(), svg.end(), rectangle), end; at != end; ++at) {
    if (std::stod((*at)[2]) < 78) continue;
    const double from = std::stod((*at)[1]), width = std::stod((*at)[3]);
    CHECK((from >= 96 && width > 0 && from + width <= 96 + 1000.01));
    ++bars;
  }
  // Four spans of a phase in each block, three blocks that wait already for the next one's, and the slowest
  // block once more, with its loader.
  CHECK(bars == 2 * 4 * kBlocks + (kBlocks - 1) + 2 * 4 + 2);
}

}  // namespace mkbench
