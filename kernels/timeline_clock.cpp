#include "kernels/timeline_clock.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "references/base/error.h"
#include "references/base/median.h"

namespace mkbench {
namespace {

// A reading that took longer than kTooLong times the median is not used.
constexpr double kTooLong = 2;
// Huber weight: readings beyond kFar sigma count as if at kFar. sigma = kDeviationOfMedian * median distance.
constexpr double kFar = 2, kDeviationOfMedian = 1.4826;
constexpr int kRefits = 10;
// Reject the linear fit if the median distance of a reading from its line exceeds kNoLine steps of the timer and
// kNoLine times the median distance of a reading from the interpolation between its neighbours.
constexpr double kNoLine = 2;

BlockClock written_readings(std::span<const TimelineAnchor> anchors) {
  BlockClock block;
  for (size_t i = 0; i < anchors.size(); ++i) {
    const TimelineAnchor& a = anchors[i];
    if (a.ns == 0) continue;
    if (block.readings.empty()) block.first = a;
    block.readings.push_back(
        {.number = i,
         .cycles = static_cast<double>(static_cast<int64_t>(a.cycles - block.first.cycles)),
         .ns = static_cast<double>(static_cast<int64_t>(a.ns - block.first.ns)),
         .read_cycles = static_cast<double>(a.read_cycles),
         .step_ns = static_cast<double>(a.timer_step_ns)});
  }
  return block;
}

// Whether a line can be drawn through the readings that are used.
bool spans_time(const BlockClock& block) {
  double least = INFINITY, most = -INFINITY;
  for (const ClockReading& r : block.readings) {
    if (!r.used) continue;
    least = std::min(least, r.cycles);
    most = std::max(most, r.cycles);
  }
  return most > least;
}

void choose_readings(BlockClock& block, double longest) {
  for (ClockReading& r : block.readings) r.used = r.read_cycles <= longest;
  if (spans_time(block)) return;
  for (ClockReading& r : block.readings) r.used = true;
}

// Weighted least-squares line through the block's readings less their `common` deviations.
void fit_line(BlockClock& block, const std::vector<double>& weights,
              const std::vector<double>& common) {
  const std::vector<ClockReading>& readings = block.readings;
  double all = 0, cycles = 0, ns = 0;
  for (size_t i = 0; i < readings.size(); ++i) {
    all += weights[i];
    cycles += weights[i] * readings[i].cycles;
    ns += weights[i] * (readings[i].ns - common[readings[i].number]);
  }
  block.cycles = cycles / all;
  block.ns = ns / all;
  double both = 0, square = 0;
  for (size_t i = 0; i < readings.size(); ++i) {
    const double off = readings[i].cycles - block.cycles;
    both += weights[i] * off * (readings[i].ns - common[readings[i].number] - block.ns);
    square += weights[i] * off * off;
  }
  block.ns_per_cycle = both / square;
}

double line(const BlockClock& block, double cycles) {
  return block.ns + (cycles - block.cycles) * block.ns_per_cycle;
}

// Weights of the readings: 1, less for a reading that took longer than the median, 0 for an unused one.
std::vector<double> weights_of(const BlockClock& block, double median_read) {
  std::vector<double> weights;
  for (const ClockReading& r : block.readings) {
    const double share = r.read_cycles > median_read ? median_read / r.read_cycles : 1;
    weights.push_back(r.used ? std::max(share * share, 1e-6) : 0);
  }
  return weights;
}

// Refits the line with Huber's weights, so that single outliers do not bend it.
void refit_line(BlockClock& block, const std::vector<double>& weights,
                const std::vector<double>& common) {
  std::vector<double> distances(block.readings.size());
  for (int fit = 0; fit < kRefits; ++fit) {
    std::vector<double> used;
    for (size_t i = 0; i < distances.size(); ++i) {
      const ClockReading& r = block.readings[i];
      distances[i] = std::abs(r.ns - common[r.number] - line(block, r.cycles));
      if (r.used) used.push_back(distances[i]);
    }
    const double far = std::max(kFar * kDeviationOfMedian * median(used), 1e-3);
    std::vector<double> now = weights;
    for (size_t i = 0; i < now.size(); ++i) {
      if (distances[i] > far) now[i] *= far / distances[i];
    }
    fit_line(block, now, common);
  }
}

}  // namespace

LaunchClocks::LaunchClocks(const std::string& who, int blocks,
                           std::span<const TimelineAnchor> anchors) {
  const size_t readings = anchors.size() / static_cast<size_t>(std::max(blocks, 1));
  std::vector<double> read_cycles;
  for (int block = 0; block < blocks; ++block) {
    blocks_.push_back(
        written_readings(anchors.subspan(static_cast<size_t>(block) * readings, readings)));
    for (const ClockReading& r : blocks_.back().readings) read_cycles.push_back(r.read_cycles);
  }
  const double median_read = median(read_cycles);
  common_.assign(readings, 0);
  std::vector<std::vector<double>> weights;
  for (BlockClock& block : blocks_) {
    choose_readings(block, kTooLong * median_read);
    if (!spans_time(block)) {
      throw Error(ErrorKind::kRuntime, who + ": timeline: block " +
                                           std::to_string(&block - blocks_.data()) + ": found " +
                                           std::to_string(block.readings.size()) +
                                           " readings of its clocks, wanted 2 or more that differ");
    }
    weights.push_back(weights_of(block, median_read));
    fit_line(block, weights.back(), common_);
    if (first_ns_ == 0 || block.first.ns < first_ns_) first_ns_ = block.first.ns;
  }
  fit_lines(weights);
  std::vector<double> beside_lines, beside_neighbours;
  for (const BlockClock& block : blocks_) {
    for (const ClockReading& r : block.readings) {
      if (r.step_ns > 0 && (step_ns_ == 0 || r.step_ns < step_ns_)) step_ns_ = r.step_ns;
      if (!r.used) continue;
      beside_lines.push_back(std::abs(distance(block, r)));
      beside_neighbours.push_back(neighbours_distance(block, r));
    }
  }
  by_reading_ = step_ns_ > 0 && median(beside_lines) > kNoLine * step_ns_ &&
                median(beside_neighbours) < median(beside_lines) / kNoLine;
}

// A deviation common to all blocks would look like an error of each: estimate it first and subtract it.
void LaunchClocks::fit_lines(const std::vector<std::vector<double>>& weights) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<double>> distances(common_.size()), left_out(common_.size());
    for (const BlockClock& block : blocks_) {
      for (const ClockReading& r : block.readings) {
        (r.used ? distances : left_out)[r.number].push_back(distance(block, r));
      }
    }
    for (size_t i = 0; i < common_.size(); ++i)
      common_[i] += median(distances[i].empty() ? left_out[i] : distances[i]);
    for (size_t block = 0; block < blocks_.size(); ++block)
      refit_line(blocks_[block], weights[block], common_);
  }
}

double LaunchClocks::distance(const BlockClock& block, const ClockReading& reading) const {
  return reading.ns - line(block, reading.cycles) - common_[reading.number];
}

double LaunchClocks::ns(int block, unsigned long long cycles) const {
  const BlockClock& clock = blocks_[static_cast<size_t>(block)];
  const auto now = static_cast<double>(static_cast<int64_t>(cycles - clock.first.cycles));
  return static_cast<double>(clock.first.ns - first_ns_) + line(clock, now) +
         correction(clock, now, by_reading_, nullptr);
}

// The correction to a block's line at `cycles`: the deviations of the readings before and after it, interpolated
// linearly. With `own` they are deviations of this block's readings, else the deviations common to all blocks. The
// reading `aside` is skipped, so that it can be compared with the interpolation between its neighbours.
double LaunchClocks::correction(const BlockClock& block, double cycles, bool own,
                                const ClockReading* aside) const {
  const auto taken = [&](const ClockReading& r) { return &r != aside && (!own || r.used); };
  const auto of = [&](const ClockReading& r) {
    return own ? r.ns - line(block, r.cycles) : common_[r.number];
  };
  const auto begin = block.readings.begin(), end = block.readings.end();
  const auto after = std::upper_bound(
      begin, end, cycles, [](double at, const ClockReading& r) { return at < r.cycles; });
  const auto to = std::find_if(after, end, taken);
  const auto from = std::find_if(std::make_reverse_iterator(after), block.readings.rend(), taken);
  if (from == block.readings.rend()) return to == end ? 0 : of(*to);
  if (to == end) return of(*from);
  const double share = (cycles - from->cycles) / (to->cycles - from->cycles);
  return (1 - share) * of(*from) + share * of(*to);
}

// Distance of a reading from the interpolation between its neighbours.
double LaunchClocks::neighbours_distance(const BlockClock& block,
                                         const ClockReading& reading) const {
  return std::abs(reading.ns - line(block, reading.cycles) -
                  correction(block, reading.cycles, true, &reading));
}

void LaunchClocks::tell(ClockQuality& quality) const {
  quality = {.step_ns = step_ns_, .by_reading = by_reading_};
  std::vector<double> errors;
  for (const BlockClock& block : blocks_) {
    for (const ClockReading& r : block.readings) {
      const double beside_line = std::abs(distance(block, r));
      const double off = by_reading_ ? neighbours_distance(block, r) : beside_line;
      const double read = r.read_cycles * block.ns_per_cycle;
      const bool end = &r == &block.readings.front() || &r == &block.readings.back();
      ++quality.readings;
      quality.left_out += r.used ? 0 : 1;
      quality.line_error_ns = std::max(quality.line_error_ns, beside_line);
      double& longest = r.used ? quality.longest_read_ns : quality.left_out_read_ns;
      longest = std::max(longest, read);
      // The first and the last reading have one neighbour only: nothing to interpolate between.
      if (by_reading_ && end) continue;
      if (r.used)
        errors.push_back(off);
      else
        quality.left_out_error_ns = std::max(quality.left_out_error_ns, off);
    }
  }
  if (errors.empty()) return;
  quality.error_ns = *std::max_element(errors.begin(), errors.end());
  const auto place = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() * 99 / 100);
  std::nth_element(errors.begin(), place, errors.end());
  quality.error_99_ns = *place;
}

}  // namespace mkbench
