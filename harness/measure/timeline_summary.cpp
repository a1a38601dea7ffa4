#include "harness/measure/timeline_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace mkbench {
namespace {

constexpr double kNsPerUs = 1000;

bool of_decode(const TimelineSpan& span, int steps) { return span.step >= 0 && span.step < steps; }

// A block's part of a phase ends with its last body or hand-off; what it waits for afterwards belongs to the
// next phase.
bool ends_phase(const TimelineSpan& span) {
  return span.role == 0 && (span.what() == SpanKind::kBody || span.what() == SpanKind::kHandOff);
}

// The spans of role 0 by block, each block's in the order of their begins.
std::map<int, std::vector<const TimelineSpan*>> first_role(const Timeline& timeline) {
  std::map<int, std::vector<const TimelineSpan*>> blocks;
  for (const TimelineSpan& span : timeline.spans) {
    if (span.role == 0) blocks[span.block].push_back(&span);
  }
  return blocks;
}

// What a block did between two moments.
KindTimes times_between(const std::vector<const TimelineSpan*>& spans, int64_t begin, int64_t end) {
  KindTimes times;
  times.other = static_cast<double>(end - begin) / kNsPerUs;
  auto at = std::upper_bound(spans.begin(), spans.end(), begin,
                             [](int64_t t, const TimelineSpan* s) { return t < s->t1_ns; });
  for (; at != spans.end() && (*at)->t0_ns < end; ++at) {
    const double us =
        static_cast<double>(std::min((*at)->t1_ns, end) - std::max((*at)->t0_ns, begin)) / kNsPerUs;
    times.of((*at)->what()) += us;
    times.other -= us;
  }
  times.other = std::max(times.other, 0.0);
  return times;
}

// The key that occurs most often, and how often; the lowest one among equals.
std::pair<int, int> most_frequent(const std::map<int, int>& counts) {
  std::pair<int, int> most{-1, 0};
  for (const auto& [key, count] : counts) {
    if (count > most.second) most = {key, count};
  }
  return most;
}

std::vector<PhaseTimes> phase_times(const Timeline& timeline, int blocks, int steps) {
  std::map<std::pair<int, int>, KindTimes> sums;
  for (const TimelineSpan& span : timeline.spans) {
    if (span.step >= steps) continue;
    sums[{span.role, span.phase}].of(span.what()) +=
        static_cast<double>(span.t1_ns - span.t0_ns) / kNsPerUs / blocks / steps;
  }
  std::vector<PhaseTimes> phases;
  for (const auto& [place, us] : sums) {
    phases.push_back({timeline.roles.at(static_cast<size_t>(place.first)),
                      timeline.phases.at(static_cast<size_t>(place.second)), us});
  }
  return phases;
}

}  // namespace

void KindTimes::add(const KindTimes& more, double factor) {
  body += factor * more.body;
  exchange += factor * more.exchange;
  weights += factor * more.weights;
  hand_off += factor * more.hand_off;
  room += factor * more.room;
  other += factor * more.other;
}

double& KindTimes::of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kBody:
      return body;
    case SpanKind::kExchange:
      return exchange;
    case SpanKind::kWeights:
      return weights;
    case SpanKind::kHandOff:
      return hand_off;
    case SpanKind::kRoom:
      return room;
    case SpanKind::kCount:
      break;
  }
  return other;
}

std::vector<PhaseEnd> phase_ends(const Timeline& timeline, int steps) {
  std::map<std::tuple<int, int, int>, std::map<int, int64_t>> ends;  // of each block
  int64_t begin = 0;
  for (const TimelineSpan& span : timeline.spans) {
    if (!of_decode(span, steps) || !ends_phase(span)) continue;
    int64_t& end = ends[{span.step, span.layer, span.phase}][span.block];
    end = std::max(end, span.t1_ns);
  }
  std::vector<PhaseEnd> list;
  for (const auto& [key, blocks] : ends) {
    PhaseEnd one;
    std::tie(one.step, one.layer, one.phase) = key;
    std::vector<int64_t> all;
    for (const auto& [block, end] : blocks) {
      all.push_back(end);
      if (one.last_block >= 0 && end <= one.end_ns) continue;
      one.last_block = block;
      one.end_ns = end;
    }
    std::nth_element(all.begin(), all.begin() + static_cast<int64_t>(all.size() / 2), all.end());
    one.median_ns = all[all.size() / 2];
    list.push_back(one);
  }
  std::sort(list.begin(), list.end(), [](const PhaseEnd& a, const PhaseEnd& b) {
    return std::tie(a.end_ns, a.step, a.layer, a.phase) <
           std::tie(b.end_ns, b.step, b.layer, b.phase);
  });
  for (PhaseEnd& one : list) {
    one.begin_ns = begin;
    begin = one.end_ns;
  }
  return list;
}

TimelineSummary summarize_timeline(const Timeline& timeline, int steps) {
  TimelineSummary summary;
  summary.steps = steps;
  summary.spans = static_cast<int64_t>(timeline.spans.size());
  summary.lost = timeline.lost;
  const auto blocks = first_role(timeline);
  summary.blocks = static_cast<int>(blocks.size());
  if (blocks.empty() || steps < 1) return summary;
  summary.phases = phase_times(timeline, summary.blocks, steps);

  const std::vector<PhaseEnd> ends = phase_ends(timeline, steps);
  std::map<std::pair<bool, int>, PathPart> parts;  // by phase, in layers and outside
  std::map<std::pair<bool, int>, std::map<int, int>> lasts;
  std::vector<std::pair<bool, int>> order;
  std::map<int, int> all_lasts;
  std::set<int> layers;
  summary.frames_us.assign(static_cast<size_t>(steps), 0);
  for (const PhaseEnd& end : ends) {
    const std::pair place{end.layer >= 0, end.phase};
    if (parts.count(place) == 0) order.push_back(place);
    PathPart& part = parts[place];
    ++part.executions;
    part.us.add(times_between(blocks.at(end.last_block), end.begin_ns, end.end_ns));
    part.spread_us += static_cast<double>(end.end_ns - end.median_ns) / kNsPerUs;
    ++lasts[place][end.last_block];
    ++all_lasts[end.last_block];
    if (end.layer >= 0) layers.insert(end.layer);
    summary.frames_us[static_cast<size_t>(end.step)] = static_cast<double>(end.end_ns) / kNsPerUs;
  }
  summary.layers = static_cast<int>(layers.size());
  for (const auto& place : order) {
    PathPart part = parts[place];
    summary.step_us += part.us.total() / steps;
    if (place.first) summary.layer_us += part.us.total() / steps / summary.layers;
    const double executions = part.executions;
    KindTimes mean;
    mean.add(part.us, 1 / executions);
    part.us = mean;
    part.spread_us /= executions;
    part.phase = timeline.phases.at(static_cast<size_t>(place.second));
    part.per_layer = place.first;
    const auto [block, count] = most_frequent(lasts[place]);
    part.last_block = block;
    part.last_share = count / executions;
    summary.path.push_back(part);
  }
  const auto [block, count] = most_frequent(all_lasts);
  summary.slowest_block = block;
  if (!ends.empty()) summary.slowest_share = count / static_cast<double>(ends.size());
  return summary;
}

}  // namespace mkbench
