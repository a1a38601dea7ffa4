#include "harness/measure/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr size_t kFewestRounds = 4;
// Numbers of processes in a comparison. Over 3, they are at most half of the rounds: larger splits
// would differ in little but which copy is the baseline.
constexpr int kProcessCounts[] = {3, 5, 8, 15, 30, 60};

std::vector<RecordedRound> rounds_with(const std::vector<RecordedRound>& rounds,
                                       const char* library) {
  std::vector<RecordedRound> held;
  std::copy_if(rounds.begin(), rounds.end(), std::back_inserter(held),
               [&](const RecordedRound& round) { return round.contains(library); });
  return held;
}

void check_rounds(const std::vector<RecordedRound>& rounds) {
  const auto need = [](bool holds, const std::string& found, const std::string& wanted) {
    if (!holds)
      throw Error(ErrorKind::kRuntime,
                  fmt::format("calibration: found {}, wanted {}", found, wanted));
  };
  need(rounds.size() >= kFewestRounds, fmt::format("{} rounds", rounds.size()),
       fmt::format("at least {}", kFewestRounds));
  for (const SlowLibrary& slow : kSlowLibraries) {
    const size_t held = rounds_with(rounds, slow.name).size();
    need(held >= kFewestRounds, fmt::format("{} rounds with {}", held, slow.name),
         fmt::format("at least {}", kFewestRounds));
  }
  const auto first = rounds.front().find(kSoundCopies[0]);
  const size_t blocks = first != rounds.front().end() ? first->second.size() : 0;
  for (size_t r = 0; r < rounds.size(); ++r) {
    const auto check = [&](const std::string& name, size_t count) {
      need(count > 0 && count == blocks, fmt::format("{} blocks of {} in round {}", count, name, r),
           std::to_string(std::max<size_t>(blocks, 1)));
    };
    for (const char* copy : kSoundCopies)
      if (!rounds[r].contains(copy)) check(copy, 0);
    for (const auto& [name, times] : rounds[r]) check(name, times.size());
  }
}

// Rounds of one split, and which copy is the baseline in each of them.
struct Split {
  std::vector<int> rounds, copies;
};

std::vector<Split> draw_splits(int rounds, int processes, uint64_t seed) {
  const auto orders = block_orders(rounds, kCalibrationSplits, true, seed);
  const auto sides = block_orders(2, kCalibrationSplits * processes, true, ~seed);
  std::vector<Split> splits;
  for (size_t s = 0; s < orders.size(); ++s) {
    Split split;
    for (size_t i = 0; i < static_cast<size_t>(processes); ++i) {
      split.rounds.push_back(orders[s][i]);
      split.copies.push_back(sides[s * static_cast<size_t>(processes) + i].front());
    }
    splits.push_back(std::move(split));
  }
  return splits;
}

// Pairs the copy that is the baseline of a split with the other copy (`library` null) or with a
// slow library. The times of that other side are multiplied by `factor`.
std::vector<PairedBlocks> pairs_of(const std::vector<RecordedRound>& rounds, const Split& split,
                                   const char* library, double factor = 1) {
  std::vector<PairedBlocks> pairs;
  for (size_t i = 0; i < split.rounds.size(); ++i) {
    const RecordedRound& round = rounds[static_cast<size_t>(split.rounds[i])];
    const char* other = library != nullptr ? library : kSoundCopies[1 - split.copies[i]];
    pairs.push_back({round.at(kSoundCopies[split.copies[i]]), round.at(other)});
    for (double& ms : pairs.back().candidate_ms) ms *= factor;
  }
  return pairs;
}

constexpr const char* kOtherCopy = nullptr;

bool is_seen(const PairedSpeedup& found) { return found.ci && found.ci->high < 1; }

bool holds(const PairedSpeedup& found, double speedup) {
  return found.ci && found.ci->low <= speedup && speedup <= found.ci->high;
}

std::string verdict_of(const PairedSpeedup& found, double margin) {
  return found.ci ? speed_verdict(*found.ci, margin) : "INCONCLUSIVE";
}

// rounds: those with the slow library, of `all_rounds`, from which the row is.
Power power_of(const std::vector<RecordedRound>& rounds, int64_t all_rounds,
               const CalibrationRow& row, const CompareProcesses& compare, double confidence,
               uint64_t seed, const SlowLibrary& slow) {
  const auto splits = draw_splits(static_cast<int>(rounds.size()), row.processes, seed);
  const double whole = compare(pairs_with_sound(rounds, slow.name), confidence).speedup;
  int seen = 0, slower = 0, rescaled = 0, missed = 0;
  for (const Split& split : splits) {
    const PairedSpeedup found = compare(pairs_of(rounds, split, slow.name), confidence);
    seen += is_seen(found);
    missed += !holds(found, whole);
    slower += verdict_of(found, row.margin) == "SLOWER";
    rescaled += is_seen(compare(pairs_of(rounds, split, kOtherCopy, 1 + slow.share), confidence));
  }
  const double all = static_cast<double>(splits.size());
  const int most =
      std::ssize(rounds) == all_rounds
          ? row.most_allowed
          : most_missed(static_cast<int>(rounds.size()), row.processes, row.splits, confidence);
  return {slow.share, seen / all, slower / all, rescaled / all, missed, most};
}

CalibrationRow row_of(const std::vector<RecordedRound>& rounds, int processes,
                      const CompareProcesses& compare, double confidence, uint64_t seed) {
  const std::vector<Split> splits = draw_splits(static_cast<int>(rounds.size()), processes, seed);
  CalibrationRow row;
  row.processes = processes;
  row.splits = static_cast<int>(splits.size());
  row.most_allowed =
      most_missed(static_cast<int>(rounds.size()), processes, row.splits, confidence);
  std::vector<PairedSpeedup> found;
  std::vector<double> widths;
  for (const Split& split : splits) {
    found.push_back(compare(pairs_of(rounds, split, kOtherCopy), confidence));
    const PairedSpeedup& last = found.back();
    if (!last.ci) {
      throw Error(
          ErrorKind::kRuntime,
          fmt::format("calibration: a comparison of {} processes has no interval", processes));
    }
    row.excluding_one += last.ci->low > 1 || last.ci->high < 1;
    widths.push_back((last.ci->high - last.ci->low) / 2 / last.speedup);
  }
  row.half_width = summarize(widths, confidence).median;
  row.margin = SpeedMargin{.half_width = row.half_width}.value();
  for (const PairedSpeedup& one : found) {
    const std::string verdict = verdict_of(one, row.margin);
    row.faster_or_slower += verdict == "FASTER" || verdict == "SLOWER";
  }
  for (const SlowLibrary& slow : kSlowLibraries) {
    const std::vector<RecordedRound> held = rounds_with(rounds, slow.name);
    if (std::ssize(held) >= processes)
      row.power.push_back(power_of(held, std::ssize(rounds), row, compare, confidence, seed, slow));
  }
  return row;
}

WholeRatio whole_ratio(const std::vector<RecordedRound>& rounds, const CompareProcesses& compare,
                       const char* library, double wanted) {
  const PairedSpeedup found = compare(pairs_with_sound(rounds, library), kWholeConfidence);
  WholeRatio whole{library, wanted, 1 / found.speedup, std::nullopt};
  if (found.ci) whole.ci = Interval{1 / found.ci->high, 1 / found.ci->low};
  return whole;
}

}  // namespace

std::vector<PairedBlocks> pairs_with_sound(const std::vector<RecordedRound>& rounds,
                                           const char* library) {
  std::vector<PairedBlocks> pairs;
  for (const RecordedRound& round : rounds_with(rounds, library))
    pairs.push_back({round.at(kSoundCopies[0]), round.at(library)});
  return pairs;
}

PairedSpeedup compare_processes(const std::vector<PairedBlocks>& processes, double confidence) {
  return paired_speedup(processes, confidence, std::nullopt);
}

Calibration calibrate(const std::vector<RecordedRound>& rounds, const CompareProcesses& compare,
                      double confidence, uint64_t seed) {
  check_rounds(rounds);
  Calibration result;
  result.alpha = 1 - confidence;
  result.seed = seed;
  result.processes = static_cast<int>(2 * rounds.size());
  result.blocks = static_cast<int>(rounds.front().at(kSoundCopies[0]).size());
  for (const int processes : kProcessCounts) {
    if (processes > 3 && 2 * processes > std::ssize(rounds)) break;
    result.rows.push_back(row_of(rounds, processes, compare, confidence, seed));
  }
  result.whole.push_back(whole_ratio(rounds, compare, kSoundCopies[1], 1));
  for (const SlowLibrary& slow : kSlowLibraries)
    result.whole.push_back(whole_ratio(rounds, compare, slow.name, 1 + slow.share));
  return result;
}

std::string row_problem(const CopiesRow& row, double alpha) {
  const auto too_many = [&](int count, const char* what) {
    return fmt::format("A/A with {} processes: {} of {} {}, alpha {:g} allows {}", row.processes,
                       count, row.splits, what, alpha, row.most_allowed);
  };
  if (row.excluding_one > row.most_allowed)
    return too_many(row.excluding_one, "intervals do not hold 1");
  if (row.faster_or_slower > row.most_allowed)
    return too_many(row.faster_or_slower, "verdicts are FASTER or SLOWER");
  return {};
}

std::vector<std::string> calibration_problems(const Calibration& calibration) {
  std::vector<std::string> problems;
  for (const CalibrationRow& row : calibration.rows) {
    const bool counts = row.processes >= kUsualProcesses || &row == &calibration.rows.back();
    const std::string problem = row_problem(row, calibration.alpha);
    if (counts && !problem.empty()) problems.push_back(problem);
    for (const Power& power : row.power) {
      if (!counts || power.missed <= power.most_missed) continue;
      problems.push_back(fmt::format(
          "{:g} % with {} processes: {} of {} intervals do not hold the ratio over all rounds, "
          "alpha {:g} allows {}",
          100 * power.share, row.processes, power.missed, row.splits, calibration.alpha,
          power.most_missed));
    }
  }
  for (const WholeRatio& whole : calibration.whole) {
    if (!whole.ci) {
      problems.push_back(whole.library + ": its ratio to the sound library has no interval");
    } else if (whole.wanted < whole.ci->low - kShareTolerance ||
               whole.wanted > whole.ci->high + kShareTolerance) {
      problems.push_back(
          fmt::format("{}: takes {:.4f} to {:.4f} of the sound library's time at "
                      "99.9 %, wanted {:g}",
                      whole.library, whole.ci->low, whole.ci->high, whole.wanted));
    }
  }
  return problems;
}

int least_trusted(const Calibration& calibration) {
  for (const CalibrationRow& row : calibration.rows) {
    if (row_problem(row, calibration.alpha).empty()) return row.processes;
  }
  return 0;
}

int processes_that_see(const Calibration& calibration, double share) {
  for (const CalibrationRow& row : calibration.rows) {
    if (!row_problem(row, calibration.alpha).empty()) continue;
    for (const Power& power : row.power) {
      if (std::abs(power.share - share) < 1e-9 && power.seen >= kWantedPower &&
          power.rescaled >= kWantedPower)
        return row.processes;
    }
  }
  return 0;
}

const CalibrationRow* row_of_processes(const Calibration& calibration, int processes) {
  const CalibrationRow* best = nullptr;
  for (const CalibrationRow& row : calibration.rows) {
    if (best == nullptr || row.processes <= processes) best = &row;
  }
  return best;
}

SpeedMargin margin_of(const Calibration& calibration, int processes, const std::string& source) {
  SpeedMargin margin{row_of_processes(calibration, processes)->half_width, source};
  const int least = least_trusted(calibration);
  if (least == calibration.rows.front().processes) return margin;
  // The last row before the first trusted one.
  const CalibrationRow& row =
      least > 0 ? *row_of_processes(calibration, least - 1) : calibration.rows.back();
  margin.least_processes = least > 0 ? least : row.processes + 1;
  margin.too_few = fmt::format(
      "too few processes for a verdict on this machine: {}; --processes {} "
      "or more",
      row_problem(row, calibration.alpha), margin.least_processes);
  return margin;
}

}  // namespace mkbench
