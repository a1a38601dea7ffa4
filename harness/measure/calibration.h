// Calibration of the clock: what a comparison says of two copies of one engine (A/A), and of an
// engine that is slower by a known share. It works on recorded processes alone; the comparison is a
// parameter, so that tests can pass a wrong one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/acceptance.h"
#include "harness/measure/two_level.h"
#include "references/base/fields.h"

namespace mkbench {

// Compares two engines by the times of their processes.
using CompareProcesses =
    std::function<PairedSpeedup(const std::vector<PairedBlocks>& processes, double confidence)>;

// One process of each engine, whose blocks were interleaved: ms a token, by the library's name.
using RecordedRound = std::map<std::string, std::vector<double>>;

// The libraries of a round: two copies of one engine, and slower ones with their extra time as a
// share of the sound time.
inline constexpr char kSoundCopies[2][12] = {"sound", "sound_copy"};
struct SlowLibrary {
  const char* name;
  const char* row;  // its row in the table of `selftest --timing`
  double share;
};
inline constexpr SlowLibrary kSlowLibraries[] = {
    {"slow_1", "S1", 0.01}, {"slow_2", "S2", 0.02}, {"slow_5", "S5", 0.05}};

// How often a comparison of a random split of the rounds shows that an engine is slower by `share`.
struct Power {
  double share = 0;
  double seen = 0;      // share of comparisons whose interval lies below 1
  double slower = 0;    // share of comparisons with the verdict SLOWER
  double rescaled = 0;  // as `seen`, with a copy's times multiplied by 1 + share
  // Not stored: comparisons whose interval does not hold the ratio over all rounds, and how many may.
  int missed = 0, most_missed = 0;
};

constexpr std::string_view struct_name(Tag<Power>) { return "power"; }
template <typename V>
void describe_fields(V& v, Tag<Power>) {
  v.field("share", &Power::share, "extra time of the engine, as a share of the sound one's");
  v.field("seen", &Power::seen, "share of comparisons whose interval lies below 1");
  v.field("slower", &Power::slower, "share of comparisons with the verdict SLOWER");
  v.field("rescaled", &Power::rescaled, "as seen, with a copy's times multiplied by 1 + share");
}

// Results of comparisons of two copies, with `processes` processes of each.
struct CopiesRow {
  int processes = 0;
  int splits = 0;         // A/A comparisons
  int excluding_one = 0;  // comparisons whose interval does not hold 1
  int most_allowed = 0;   // the most that alpha and chance allow: most_missed()
  int faster_or_slower = 0;
  double half_width = 0;  // median half-width of the A/A intervals, relative to the speed-up
};

constexpr std::string_view struct_name(Tag<CopiesRow>) { return "copies_row"; }
template <typename V>
void describe_fields(V& v, Tag<CopiesRow>) {
  using R = CopiesRow;
  v.field("processes", &R::processes, "processes of each engine in a comparison");
  v.field("splits", &R::splits, "A/A comparisons");
  v.field("excluding_one", &R::excluding_one, "A/A comparisons whose interval does not hold 1");
  v.field("most_allowed", &R::most_allowed, "most that alpha and chance allow");
  v.field("faster_or_slower", &R::faster_or_slower, "A/A comparisons that say FASTER or SLOWER");
  v.field("half_width", &R::half_width, "median half-width of an A/A interval, relative");
}

// Results of comparisons with `processes` processes of each engine.
struct CalibrationRow : CopiesRow {
  double margin = 0;  // SpeedMargin of the half-width
  std::vector<Power> power;
};

constexpr std::string_view struct_name(Tag<CalibrationRow>) { return "calibration_row"; }
template <typename V>
void describe_fields(V& v, Tag<CalibrationRow>) {
  using R = CalibrationRow;
  describe_fields(v, Tag<CopiesRow>());
  v.field("margin", &R::margin, "max of 0.5 % and 1.5 half-widths");
  v.field("power", &R::power, "power for each share of slow-down");
}

// Comparison of a library with the first copy over all recorded processes, without splits.
struct WholeRatio {
  std::string library;
  double wanted = 1;  // ratio of its time to the copy's
  double ratio = 0;
  std::optional<Interval> ci;  // interval of `ratio`, at kWholeConfidence
};

constexpr std::string_view struct_name(Tag<WholeRatio>) { return "whole_ratio"; }
template <typename V>
void describe_fields(V& v, Tag<WholeRatio>) {
  using W = WholeRatio;
  v.field("library", &W::library, "library that is compared with the sound one");
  v.field("wanted", &W::wanted, "ratio of its time to the sound one's");
  v.field("ratio", &W::ratio, "measured ratio, over all processes");
  v.field("ci", &W::ci, "interval of the ratio, at 99.9 %");
}

struct Calibration {
  double alpha = 0.05;
  uint64_t seed = 1;  // for drawing the splits
  int processes = 0;  // both copies of the sound engine together
  int blocks = 0;     // in each process
  std::vector<CalibrationRow> rows;
  std::vector<WholeRatio> whole;
};

template <typename V>
void describe_fields(V& v, Tag<Calibration>) {
  using C = Calibration;
  v.field("alpha", &C::alpha, "share of A/A intervals that may miss 1");
  v.field("seed", &C::seed, "seed of the splits");
  v.field("processes", &C::processes, "recorded processes of the sound engine");
  v.field("blocks", &C::blocks, "blocks in each process");
  v.field("rows", &C::rows, "one row for each number of processes in a comparison");
  v.field("whole", &C::whole, "each library in all processes, as recorded");
}

inline constexpr int kCalibrationSplits = 200;
// Processes of a comparison on a GPU without --processes. A calibration holds if its rows with this
// number of processes or more are trusted.
inline constexpr int kUsualProcesses = 5;
// The row that shows the power of a calibration on a GPU, and the rounds which that row needs.
inline constexpr int kPowerProcesses = 30, kPowerRounds = 2 * kPowerProcesses;
inline constexpr double kWholeConfidence = 0.999;
// A slow-down counts as seen if at least this share of the random splits shows it.
inline constexpr double kWantedPower = 0.9;
// Tolerance of a slow library's extra time: its wait ends only with a tick of its clock.
inline constexpr double kShareTolerance = 0.0005;

// The comparison that reports use.
PairedSpeedup compare_processes(const std::vector<PairedBlocks>& processes, double confidence);

// Pairs the first copy with `library`, in all rounds that hold the library.
std::vector<PairedBlocks> pairs_with_sound(const std::vector<RecordedRound>& rounds,
                                           const char* library);

// Draws kCalibrationSplits random splits for each number of processes that the rounds allow. A
// split takes that many rounds and draws, for each of them, which copy is the baseline. Every round
// must hold both copies, each slow library must be in at least 4 rounds, and all must have equal
// numbers of blocks; else throws Error(kRuntime).
Calibration calibrate(const std::vector<RecordedRound>& rounds, const CompareProcesses& compare,
                      double confidence, uint64_t seed);

// Why the A/A comparisons of a row fail; empty if its verdicts are to be trusted. The engine opened
// first has another place in the card's memory, so the copies may differ by nearly the same amount
// in most rounds, with either sign. Three differences of one sign then look like a small scatter
// around a wrong mean, and t intervals of three processes miss 1 too often. In that case three
// processes are too few on this machine, and its clock is not at fault.
std::string row_problem(const CopiesRow& row, double alpha);

// Why a calibration does not hold: problems of its rows from kUsualProcesses on (or of the last
// row, if that has fewer processes) and of the ratios that it measured. Empty if it holds.
std::vector<std::string> calibration_problems(const Calibration& calibration);

// The smallest number of processes whose row is trusted; 0 if there is none.
int least_trusted(const Calibration& calibration);

// The smallest number of processes whose row is trusted and sees a slow-down of `share` with
// kWantedPower, both in recorded and in rescaled times; 0 if no row does.
int processes_that_see(const Calibration& calibration, double share);

// The row for comparisons of `processes` processes: the largest row that is no larger, else the
// first. Null if there is no row.
const CalibrationRow* row_of_processes(const Calibration& calibration, int processes);

// The margin of comparisons of `processes` processes, and the fewest processes that get a verdict.
// The calibration must have a row.
SpeedMargin margin_of(const Calibration& calibration, int processes, const std::string& source);

}  // namespace mkbench
