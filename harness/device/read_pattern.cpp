#include "harness/device/read_pattern.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "references/base/error.h"

namespace mkbench {
namespace {

using Way = ReadPattern::Way;

constexpr uint32_t kRingCopyBytes = 16 * 1024;
constexpr BulkPlan kShapes[] = {{2, 16 * 1024, 0}, {3, 16 * 1024, 0}, {4, 16 * 1024, 0},
                                {5, 16 * 1024, 0}, {6, 16 * 1024, 0}, {4, 8 * 1024, 0},
                                {6, 8 * 1024, 0},  {8, 8 * 1024, 0},  {12, 4 * 1024, 0}};
// Gaps to try, as shares of the time between two copies of a block without gaps. The best gap is
// just long enough for the memory to keep up: on an H100 0.987 of that time. Gaps that are about as
// good span only 0.01 of it.
constexpr double kGapShares[] = {0.80, 0.86, 0.91, 0.94, 0.96, 0.975, 0.985, 0.995};
constexpr double kFinerShares[] = {-0.015, -0.005, 0.005, 0.015},
                 kFinestShares[] = {-0.0025, 0.0025};
constexpr size_t kPacedShapes = 3;  // how many shapes of each way are tried with gaps
constexpr size_t kRefined = 2, kFinalists = 8;
// L2 can matter from this share of a step's bytes on. It is asked to keep these shares of its size;
// setting a part of it aside for persisting lines made steps slower on an H200 (reports/perf.md).
constexpr double kNotableL2 = 0.02;
constexpr double kKeptShares[] = {0, 0.5, 0.75};
constexpr int kShortSamples = 3, kLongRounds = 5;
constexpr double kShortSampleMs = 3;
constexpr double kShortestGapPs = 1e3, kLongestGapPs = 5e8;

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Tried {
  ReadPattern pattern;
  double ms_per_step = 0;
};

class Search {
 public:
  Search(const PatternSpace& space, const TimePattern& time) : space_(space), time_(time) {}

  FoundPattern run() {
    try_pattern({});
    for (const BulkPlan& shape : kShapes) {
      if (space_.bulk) try_pattern({Way::kBulk, shape});
    }
    for (uint32_t copies = 2; copies <= space_.most_ring_copies && copies <= 8; ++copies)
      try_pattern({Way::kRing, {copies, kRingCopyBytes, 0}});
    for (const Way way : {Way::kBulk, Way::kRing}) {
      for (const Tried& shape : best(kPacedShapes, way)) {
        for (const double share : kGapShares) try_gap(shape, share);
      }
    }
    for (const Tried& one : best(kRefined, std::nullopt)) refine(one);
    for (const Tried& one : best(kRefined, std::nullopt)) try_gaps(one, kFinestShares);
    if (static_cast<double>(space_.l2_bytes) >=
        kNotableL2 * static_cast<double>(space_.step_bytes)) {
      for (const Tried& one : best(kRefined, std::nullopt)) use_l2(one);
    }
    if (tried_.empty()) throw *error_;
    return decide();
  }

 private:
  void try_pattern(const ReadPattern& pattern) {
    const auto known = [&](const Tried& t) { return t.pattern == pattern; };
    if (std::any_of(tried_.begin(), tried_.end(), known)) return;
    try {
      // One step warms up; its time sets the number of steps in a sample.
      const int steps = steps_for(kShortSampleMs, time_(pattern, 1));
      std::vector<double> ms;
      for (int i = 0; i < kShortSamples; ++i) ms.push_back(time_(pattern, steps) / steps);
      tried_.push_back({pattern, middle_of(ms)});
    } catch (const Error& error) {
      error_ = error;
    }
  }

  // Picoseconds between two copies of a block, as timed in `t`.
  double ps_a_copy(const Tried& t) const {
    const double blocks = t.pattern.way == Way::kRing ? space_.ring_blocks : space_.bulk_blocks;
    const double copies =
        static_cast<double>(space_.step_bytes) / (blocks * t.pattern.plan.copy_bytes);
    return t.ms_per_step * 1e9 / copies;
  }

  void try_gap(const Tried& shape, double share) {
    const double gap_ps = share * ps_a_copy(shape);
    if (!(gap_ps >= kShortestGapPs) || gap_ps > kLongestGapPs) return;
    ReadPattern pattern = shape.pattern;
    pattern.plan.gap_ps = static_cast<uint32_t>(std::lround(gap_ps));
    try_pattern(pattern);
  }

  // Tries gaps a little shorter and longer than `one`'s.
  void try_gaps(const Tried& one, std::span<const double> finer) {
    const double gap = one.pattern.plan.gap_ps;
    if (!(gap > 0)) return;
    for (const double more : finer) try_gap(one, gap / ps_a_copy(one) + more);
  }

  // Tries gaps near `one`'s, and one copy more or less in flight.
  void refine(const Tried& one) {
    if (one.pattern.way == Way::kPlain) return;
    try_gaps(one, kFinerShares);
    for (const int more : {-1, 1}) {
      ReadPattern pattern = one.pattern;
      pattern.plan.stages += static_cast<uint32_t>(more);
      const uint32_t most =
          pattern.way == Way::kRing
              ? space_.most_ring_copies
              : std::min(BulkPlan::kMostStages, BulkPlan::kMostRingBytes / pattern.plan.copy_bytes);
      if (pattern.plan.stages >= 1 && pattern.plan.stages <= most) try_pattern(pattern);
    }
  }

  void use_l2(const Tried& one) {
    if (one.pattern.way == Way::kRing) return;  // its stream has one order
    for (const double share : kKeptShares) {
      for (const bool back_and_forth : {false, true}) {
        ReadPattern pattern = one.pattern;
        pattern.back_and_forth = back_and_forth;
        pattern.kept_mib =
            static_cast<uint32_t>(share * static_cast<double>(space_.l2_bytes) / (1 << 20));
        try_pattern(pattern);
      }
    }
  }

  std::vector<Tried> best(size_t count, std::optional<Way> way) const {
    std::vector<Tried> found;
    for (const Tried& t : tried_) {
      if (!way || t.pattern.way == *way) found.push_back(t);
    }
    std::sort(found.begin(), found.end(),
              [](const Tried& a, const Tried& b) { return a.ms_per_step < b.ms_per_step; });
    found.resize(std::min(found.size(), count));
    return found;
  }

  // Times the finalists in turns, so that the card's warming up favours none.
  FoundPattern decide() {
    std::vector<Tried> finalists = best(kFinalists, std::nullopt);
    std::vector<std::vector<double>> ms(finalists.size());
    for (int round = 0; round < kLongRounds; ++round) {
      for (size_t i = 0; i < finalists.size(); ++i) {
        const int steps = steps_for(kLongSampleMs, finalists[i].ms_per_step);
        try {
          ms[i].push_back(time_(finalists[i].pattern, steps) / steps);
        } catch (const Error& error) {
          error_ = error;
          ms[i].push_back(HUGE_VAL);
        }
      }
    }
    size_t winner = 0;
    for (size_t i = 0; i < finalists.size(); ++i) {
      finalists[i].ms_per_step = middle_of(ms[i]);
      if (finalists[i].ms_per_step < finalists[winner].ms_per_step) winner = i;
    }
    if (!std::isfinite(finalists[winner].ms_per_step)) throw *error_;
    return {finalists[winner].pattern, finalists[winner].ms_per_step,
            static_cast<int>(tried_.size())};
  }

  const PatternSpace& space_;
  const TimePattern& time_;
  std::vector<Tried> tried_;
  std::optional<Error> error_;  // the last one that was caught
};

}  // namespace

int steps_for(double ms, double ms_per_step) {
  constexpr int kMost = 4096;
  if (!(ms_per_step > 0)) return 1;
  return static_cast<int>(std::clamp(std::ceil(ms / ms_per_step), 1.0, double{kMost}));
}

FoundPattern find_pattern(const PatternSpace& space, const TimePattern& time) {
  return Search(space, time).run();
}

}  // namespace mkbench
