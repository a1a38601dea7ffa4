#include "harness/measure/timeline_summary.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace mkbench {
namespace {

constexpr double kNsPerUs = 1000;

bool of_decode(const TimelineSpan& span, int steps) { return span.step >= 0 && span.step < steps; }

// A block's part of a phase ends with its last body or hand-off; what it waits for afterwards
// belongs to the next phase.
bool ends_phase(const TimelineSpan& span) {
  return span.role == 0 && (span.what() == SpanKind::kBody || span.what() == SpanKind::kHandOff);
}

bool same_track(const TimelineSpan& a, const TimelineSpan& b) {
  return a.block == b.block && a.role == b.role;
}

// Takes the spans track by track and gives each moment to one span, the one that began last.
class Partition {
 public:
  explicit Partition(std::vector<TimelineSpan>& parts) : parts_(parts) {}
  void add(const TimelineSpan& span) {
    if (!open_.empty() && !same_track(open_.back(), span)) end_track();
    until(span.t0_ns);
    at_ = span.t0_ns;
    open_.push_back(span);
  }
  void end_track() {
    until(std::numeric_limits<int64_t>::max());
    open_.clear();
  }

 private:
  // Gives the time up to `end` to the open spans.
  void until(int64_t end) {
    while (!open_.empty() && at_ < end) {
      const TimelineSpan& last = open_.back();
      const int64_t to = std::min(last.t1_ns, end);
      if (to > at_) {
        parts_.push_back(last);
        parts_.back().t0_ns = at_;
        parts_.back().t1_ns = at_ = to;
      }
      if (last.t1_ns <= end) open_.pop_back();
    }
  }

  std::vector<TimelineSpan>& parts_;
  std::vector<TimelineSpan> open_;  // of one track, in the order of their begins
  int64_t at_ = 0;
};

// How many spans begin before an earlier one of their track has ended.
int64_t overlapping_spans(const std::vector<TimelineSpan>& spans) {
  int64_t count = 0, end = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool first = i == 0 || !same_track(spans[i - 1], spans[i]);
    if (!first && spans[i].t0_ns < end) ++count;
    end = first ? spans[i].t1_ns : std::max(end, spans[i].t1_ns);
  }
  return count;
}

// The spans of role 0 by block; a block's spans are sorted by when they begin.
std::map<int, std::vector<const TimelineSpan*>> first_role(const std::vector<TimelineSpan>& spans) {
  std::map<int, std::vector<const TimelineSpan*>> blocks;
  for (const TimelineSpan& span : spans) {
    if (span.role == 0) blocks[span.block].push_back(&span);
  }
  return blocks;
}

// Times of what a block did between two moments.
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

// The key with the highest count (the lowest such key), and its count.
std::pair<int, int> most_frequent(const std::map<int, int>& counts) {
  std::pair<int, int> most{-1, 0};
  for (const auto& [key, count] : counts) {
    if (count > most.second) most = {key, count};
  }
  return most;
}

std::vector<PhaseTimes> phase_times(const Timeline& timeline,
                                    const std::vector<TimelineSpan>& spans, int blocks, int steps) {
  std::map<std::pair<int, int>, KindTimes> sums;
  for (const TimelineSpan& span : spans) {
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
  std::map<std::tuple<int, int, int>, std::map<int, int64_t>> ends;  // execution -> block -> end
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
  summary.overlapping = overlapping_spans(timeline.spans);
  std::vector<TimelineSpan> parts_of_time;
  if (summary.overlapping > 0) {
    Partition partition(parts_of_time);
    for (const TimelineSpan& span : timeline.spans) partition.add(span);
    partition.end_track();
  }
  const std::vector<TimelineSpan>& spans = summary.overlapping > 0 ? parts_of_time : timeline.spans;
  const auto blocks = first_role(spans);
  summary.blocks = static_cast<int>(blocks.size());
  if (timeline.whole_steps >= 0) steps = std::min(steps, timeline.whole_steps);
  summary.whole_steps = std::max(steps, 0);
  if (blocks.empty() || steps < 1) return summary;
  summary.phases = phase_times(timeline, spans, summary.blocks, steps);

  const std::vector<PhaseEnd> ends = phase_ends(timeline, steps);
  std::map<std::pair<bool, int>, PathPart> parts;  // key: in a layer?, phase
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
