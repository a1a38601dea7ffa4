#include "harness/plugin/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>

#include "harness/plugin/handle.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// What the name of a phase says: [ROLE/]PHASE[: KIND].
struct NamedPhase {
  std::string role = "block", phase;
  SpanKind kind = SpanKind::kBody;
};

NamedPhase parse_name(std::string name) {
  NamedPhase named;
  for (int k = 0; k < static_cast<int>(SpanKind::kCount); ++k) {
    const auto kind = static_cast<SpanKind>(k);
    const std::string ending = fmt::format(": {}", span_kind_name(kind));
    if (name.size() <= ending.size() || !name.ends_with(ending)) continue;
    named.kind = kind;
    name.resize(name.size() - ending.size());
    break;
  }
  const size_t slash = name.find('/');
  if (slash != std::string::npos && slash > 0 && slash + 1 < name.size()) {
    named.role = name.substr(0, slash);
    name.erase(0, slash + 1);
  }
  named.phase = name;
  return named;
}

// The index of `text` in `list`; appends it if it is missing.
size_t place_in(std::vector<std::string>& list, const std::string& text) {
  const auto found = std::find(list.begin(), list.end(), text);
  const auto place = static_cast<size_t>(found - list.begin());
  if (found == list.end()) list.push_back(text);
  return place;
}

struct Track {
  size_t begin, end;  // of Timeline::spans
};

std::vector<Track> tracks_of(const std::vector<TimelineSpan>& spans) {
  std::vector<Track> tracks;
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool same =
        i > 0 && spans[i].block == spans[i - 1].block && spans[i].role == spans[i - 1].role;
    if (!same) tracks.push_back({i, i});
    tracks.back().end = i + 1;
  }
  return tracks;
}

// Finds step and layer of each body from the number of bodies that its phase has in the track: one
// a step, or one a layer of each step. With any other number the step stays unknown.
void place_bodies(std::vector<TimelineSpan>& spans, const Track& track,
                  const SpannedDecode& decode) {
  std::map<int, int> bodies, seen;
  for (size_t i = track.begin; i < track.end; ++i)
    bodies[spans[i].phase] += spans[i].what() == SpanKind::kBody ? 1 : 0;
  for (size_t i = track.begin; i < track.end; ++i) {
    TimelineSpan& span = spans[i];
    if (span.what() != SpanKind::kBody) continue;
    const int number = seen[span.phase]++, count = bodies[span.phase];
    if (count == decode.steps) span.step = number;
    if (count == decode.steps * decode.layers && decode.layers > 1) {
      span.step = number / decode.layers;
      span.layer = number % decode.layers;
    }
  }
}

// Sets step and layer of the other spans: a hand-off has those of the body before it, a wait those
// of the body after it.
void place_others(std::vector<TimelineSpan>& spans, const Track& track) {
  const auto take_site = [&](size_t to, size_t from) {
    if (spans[to].phase != spans[from].phase) return;
    spans[to].step = spans[from].step;
    spans[to].layer = spans[from].layer;
  };
  for (size_t i = track.begin + 1; i < track.end; ++i) {
    if (spans[i].what() == SpanKind::kHandOff) take_site(i, i - 1);
  }
  for (size_t i = track.end - 1; i > track.begin; --i) {
    const SpanKind kind = spans[i - 1].what();
    if (kind != SpanKind::kBody && kind != SpanKind::kHandOff) take_site(i - 1, i);
  }
}

// The most roles and phases that TimelineSpan's indices can hold.
constexpr size_t kMostRoles = 128, kMostPhases = 32768;

}  // namespace

Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t), const SpannedDecode& decode) {
  Timeline timeline;
  timeline.clock = "the library's own";
  std::map<int32_t, TimelineSpan> named;  // role, phase and kind, by the plugin's phase number
  mkbench_span unwritten;
  std::memset(&unwritten, 0xff, sizeof unwritten);
  uint64_t begin = std::numeric_limits<uint64_t>::max();
  bool full = !spans.empty();
  for (size_t i = 0; i < spans.size(); ++i) {
    const mkbench_span& span = spans[i];
    if (std::memcmp(&span, &unwritten, sizeof span) == 0) {
      full = false;
      continue;
    }
    if (span.block < 0 || span.phase < 0 || span.t1_ns < span.t0_ns) {
      throw Error(
          ErrorKind::kRuntime,
          fmt::format("{}: timeline: span {}: found block {}, phase {}, {} to {} ns, wanted "
                      "a block and a phase from 0 and an end after the begin",
                      who, i, span.block, span.phase, span.t0_ns, span.t1_ns));
    }
    begin = std::min(begin, span.t0_ns);
    named.try_emplace(span.phase);
  }
  // The phases are named in the order of their numbers, which becomes their order in reports.
  for (auto& [phase, span] : named) {
    const char* name = phase_name != nullptr ? phase_name(phase) : nullptr;
    const NamedPhase one =
        parse_name(name != nullptr ? plugin_text(name) : fmt::format("phase {}", phase));
    span.role = static_cast<int8_t>(place_in(timeline.roles, one.role));
    span.phase = static_cast<int16_t>(place_in(timeline.phases, one.phase));
    span.kind = static_cast<int8_t>(one.kind);
    if (timeline.roles.size() > kMostRoles || timeline.phases.size() > kMostPhases) {
      throw Error(
          ErrorKind::kRuntime,
          fmt::format("{}: timeline: phase_name() gives more than {} roles, or more than {} "
                      "phases",
                      who, kMostRoles, kMostPhases));
    }
  }
  for (const mkbench_span& written : spans) {
    if (std::memcmp(&written, &unwritten, sizeof written) == 0) continue;
    TimelineSpan span = named.at(written.phase);
    span.block = written.block;
    span.t0_ns = static_cast<int64_t>(written.t0_ns - begin);
    span.t1_ns = static_cast<int64_t>(written.t1_ns - begin);
    timeline.spans.push_back(span);
  }
  timeline.lost = full ? 1 : 0;
  if (full) timeline.whole_steps = 0;  // spans come in any order: each step may lack some
  std::sort(timeline.spans.begin(), timeline.spans.end(),
            [](const TimelineSpan& a, const TimelineSpan& b) {
              return std::tie(a.block, a.role, a.t0_ns, a.t1_ns) <
                     std::tie(b.block, b.role, b.t0_ns, b.t1_ns);
            });
  for (const Track& track : tracks_of(timeline.spans)) {
    place_bodies(timeline.spans, track, decode);
    place_others(timeline.spans, track);
  }
  return timeline;
}

}  // namespace mkbench
