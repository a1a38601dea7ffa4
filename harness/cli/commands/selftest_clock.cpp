#include "harness/cli/commands/selftest_clock.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "harness/archive/clock_file.h"
#include "harness/archive/collector.h"
#include "harness/archive/run_folder.h"
#include "harness/device/host_machine.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/recorder.h"
#include "harness/flow/replication.h"
#include "harness/hosts/host_services.h"
#include "harness/judge/budget.h"
#include "harness/report/print_stderr.h"
#include "harness/selftest/clock_form.h"
#include "harness/wire/build_id.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr double kConfidence = 0.95;
constexpr uint64_t kSeed = 1;
constexpr char kFolder[] = "slowed";
constexpr char kCopiesRow[] = "A/A";

static_assert(kUsualProcesses == kGpuProcesses);

constexpr int kLiveBlocks = 8;  // of each process of an end-to-end A/A run

// Blocks of some milliseconds, more of them than on a card: a busy CPU's times scatter far more.
constexpr RecordPlan kOnCpu = {.tokens = 32, .blocks = 24, .warmup = 4, .seed = kSeed};
// On a GPU a process takes about a second to open, and a turn takes 30 ms, mostly to flush L2.
constexpr RecordPlan kOnCuda = {.tokens = 128, .blocks = 12, .warmup = 4, .seed = kSeed};
// One of this many rounds includes the larger slow-downs, which are easier to see than slow_1.
constexpr size_t kEveryOnCpu = 1, kEveryOnCuda = 3;

constexpr size_t kLeastSlow = std::size(kSoundCopies);  // index of slow_1 among the libraries

constexpr double kMostUnseen = 0.05;  // a slow-down that no stored calibration may miss

struct Row {
  std::string_view id, what;
  std::string found;
  std::string problem;  // empty: as wanted
  std::string open;     // why the row is undecided here; empty: it is decided
};

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

class ClockLane {
 public:
  explicit ClockLane(const SelftestCases& cases)
      : cases_(cases), form_(clock_form(cases.settings().calibrate, cases.cuda())) {
    libraries_ = {kSoundCopies[0], kSoundCopies[1]};
    for (const SlowLibrary& slow : kSlowLibraries) libraries_.emplace_back(slow.name);
    for (const std::string& library : libraries_)
      paths_.push_back(cases_.path_of(kFolder, library));
  }

  ClockTally run() {
    record();
    fmt::print(
        "\nclock of {}: {} processes of the sound engine in {} rounds, {} blocks of {} tokens "
        "each, in {:.0f} s\n",
        machine().device, result_.processes, rounds_.size(), result_.blocks, plan_of().tokens,
        seconds_);
    print_table();
    tell_copies();
    for (const SlowLibrary& slow : kSlowLibraries) tell_slow(slow);
    if (cases_.settings().calibrate) {
      run_live();
      store();
    }
    return tally_;
  }

 private:
  bool whole() const { return cases_.settings().calibrate; }
  RecordPlan plan_of() const { return cases_.cuda() ? kOnCuda : kOnCpu; }
  ClockMachine machine() const { return clock_machine(environment(), cases_.cuda()); }

  nlohmann::json environment() const {
    const nlohmann::json& known = cases_.probe().environment;
    return known.contains("cpu") ? known : nlohmann::json{{"cpu", describe_cpu()}};
  }

  void record() {
    SelftestCases::Planned planned = cases_.plan(paths_, 1, {});
    std::erase_if(planned.job.engines, [](const CaseEngine& e) { return !e.candidate; });
    Hosts hosts(cases_.invocation().start_host, planned.timeout_s);
    const double begin = steady_seconds();
    bool apart = false;
    while (takes_more_rounds(form_, rounds(), seconds_, apart)) {
      for (int i = 0; i < kRoundsOfStep; ++i) record_round(planned.job, hosts);
      seconds_ = steady_seconds() - begin;
      if (rounds() < form_.least_rounds) continue;
      result_ = calibrate(rounds_, compare_processes, kConfidence, kSeed);
      apart = told_apart();
    }
    const std::string problem = rounds_problem(form_, rounds(), seconds_);
    if (!problem.empty()) throw Error(ErrorKind::kRuntime, "selftest --timing: " + problem);
  }

  int rounds() const { return static_cast<int>(rounds_.size()); }

  void record_round(CaseJob job, Hosts& hosts) {
    if (interrupt_count() > 0) throw Interrupted{};
    const bool larger = rounds_.size() % (cases_.cuda() ? kEveryOnCuda : kEveryOnCpu) == 0;
    std::vector<size_t> taken;
    for (size_t i = 0; i < libraries_.size(); ++i) {
      if (larger || i <= kLeastSlow)
        taken.push_back(i);
      else
        std::erase_if(job.engines, [&](const CaseEngine& e) { return e.name == paths_[i]; });
    }
    RecordPlan plan = plan_of();
    plan.seed += rounds_.size();
    const auto times = record_blocks(job, HostServices(job, hosts), plan);
    RecordedRound round;
    for (const size_t i : taken) round[libraries_[i]] = times.at(paths_[i]);
    rounds_.push_back(std::move(round));
    if (!cases_.settings().quiet)
      print_stderr("mkbench: clock: {} rounds, {} processes in the last one\n", rounds_.size(),
                   taken.size());
  }

  // The slow-down's verdict over all rounds.
  std::string whole_verdict(const SlowLibrary& slow) const {
    const PairedSpeedup found = whole_ratio(slow.name);
    return found.ci ? speed_verdict(*found.ci, margin()) : "INCONCLUSIVE";
  }

  PairedSpeedup whole_ratio(const char* library) const {
    return compare_processes(pairs_with_sound(rounds_, library), kConfidence);
  }

  // Half the width of a library's interval over all rounds, of the A/A by default.
  double half_width(const char* library = kSoundCopies[1]) const {
    const PairedSpeedup found = whole_ratio(library);
    return (found.ci->high - found.ci->low) / 2 / found.speedup;
  }
  double margin() const { return SpeedMargin{.half_width = half_width()}.value(); }

  bool told_apart() const {
    for (const SlowLibrary& slow : kSlowLibraries) {
      const bool seen = is_least(slow) ? sees(slow) : whole_verdict(slow) == "SLOWER";
      if (!seen) return false;
    }
    return true;
  }

  // The smallest slow-down lies near the margin: it must be seen, but need not be SLOWER.
  static bool is_least(const SlowLibrary& slow) { return &slow == &kSlowLibraries[0]; }
  bool sees(const SlowLibrary& slow) const { return processes_that_see(result_, slow.share) > 0; }

  // The short form must show a slow-down only if the half-width is at most this; the long form must
  // always show it. For the least slow-down this is a third of it. The others must be SLOWER, so
  // this is the largest half-width at which 2 half-widths plus the margin are within the slow-down.
  static double most_half_width(const SlowLibrary& slow) {
    if (is_least(slow)) return slow.share / 3;
    double half = 0;
    for (constexpr double kStep = 1e-4;
         2 * (half + kStep) + SpeedMargin{.half_width = half + kStep}.value() <= slow.share;)
      half += kStep;
    return half;
  }
  // The half-width to compare with most_half_width(). For the least slow-down: the A/A's in the
  // calibration's last row (fewer processes). For the others, over all rounds: the wider of the
  // A/A's and of the slowed engine's own ratio.
  double half_width_for(const SlowLibrary& slow) const {
    return is_least(slow) ? result_.rows.back().half_width
                          : std::max(half_width(), half_width(slow.name));
  }
  bool is_owed(const SlowLibrary& slow) const {
    return whole() || half_width_for(slow) <= most_half_width(slow);
  }

  void print_table() const {
    fmt::print("{:>9} {:>10} {:>8} {:>12} {:>7} {:>15} {:>7}", "processes", "half-width", "margin",
               "misses of 1", "allowed", "FASTER, SLOWER", "trusted");
    for (const SlowLibrary& slow : kSlowLibraries)
      fmt::print(" {:>31}", fmt::format("{} seen/SLOWER/resc./missed", percent(slow.share)));
    fmt::print("\n");
    for (const CalibrationRow& row : result_.rows) {
      fmt::print("{:>9} {:>10} {:>8} {:>12} {:>7} {:>15} {:>7}", row.processes,
                 percent(row.half_width), percent(row.margin),
                 fmt::format("{} of {}", row.excluding_one, row.splits), row.most_allowed,
                 row.faster_or_slower, row_problem(row, result_.alpha).empty() ? "yes" : "no");
      for (const Power& power : row.power)
        fmt::print(" {:>31}", fmt::format("{:.2f}/{:.2f}/{:.2f}/{} of {}", power.seen, power.slower,
                                          power.rescaled, power.missed, row.splits));
      fmt::print("\n");
    }
  }

  void tell_copies() {
    const std::vector<std::string> problems = calibration_problems(result_);
    accepted_ = problems.empty();
    const PairedSpeedup found = whole_ratio(kSoundCopies[1]);
    const std::string verdict = speed_verdict(*found.ci, margin());
    print({.id = kCopiesRow,
           .what = "two copies of one library",
           .found = fmt::format("{}, {:.4f} [{:.4f}, {:.4f}]", verdict, 1 / found.speedup,
                                1 / found.ci->high, 1 / found.ci->low),
           .problem = fmt::format("{}", fmt::join(problems, "; ")),
           .open = {}});
    // Says which comparisons will be INCONCLUSIVE in later runs.
    const SpeedMargin of_few = margin_of(result_, 1, "");
    if (accepted_ && of_few.least_processes > 0) fmt::print("     {}\n", of_few.too_few);
  }

  void tell_slow(const SlowLibrary& slow) {
    const std::string what = fmt::format("takes {} longer", percent(slow.share));
    const PairedSpeedup found = whole_ratio(slow.name);
    const std::string verdict = whole_verdict(slow);
    Row row{.id = slow.row,
            .what = what,
            .found = fmt::format("{}, {:.4f} [{:.4f}, {:.4f}]", verdict, 1 / found.speedup,
                                 1 / found.ci->high, 1 / found.ci->low),
            .problem = {},
            .open = {}};
    const int processes = processes_that_see(result_, slow.share);
    std::string missed;
    if (is_least(slow)) {
      row.found += processes > 0 ? fmt::format(", seen with power {:g} by {} processes",
                                               kWantedPower, processes)
                                 : fmt::format(", not seen with power {:g}", kWantedPower);
      if (processes == 0)
        missed = fmt::format("no number of processes up to {} sees it with power {:g}",
                             result_.rows.back().processes, kWantedPower);
    } else if (verdict != "SLOWER") {
      missed = fmt::format("wanted SLOWER beyond the margin of {}", percent(margin()));
      accepted_ = accepted_ && slow.share < kMostUnseen;
    }
    if (!missed.empty() && !is_owed(slow)) {
      row.open = fmt::format("{}; the half-width is {}, and the row need not pass above {}", missed,
                             percent(half_width_for(slow)), percent(most_half_width(slow)));
    } else {
      row.problem = missed;
    }
    print(row);
  }

  void print(const Row& row) {
    ++tally_.rows;
    fmt::print("{:<4} {:<4} {:<32} {:<72} {}\n", row.id, cases_.cuda() ? "cuda" : "cpu", row.what,
               row.found,
               !row.problem.empty() ? "WRONG"
               : row.open.empty()   ? "ok"
                                    : "open");
    if (!row.open.empty()) {
      ++tally_.open;
      fmt::print("     open: {}\n", row.open);
    }
    if (row.problem.empty()) return;
    ++tally_.wrong;
    fmt::print("     {}\n", row.problem);
  }

  // Judges and times two copies as candidates of complete runs.
  void run_live() {
    const std::vector<std::string> pair = {paths_[0], paths_[1]};
    const std::vector<std::string> arguments = {"--n-gen", std::to_string(plan_of().tokens),
                                                "--blocks",
                                                std::to_string(kLiveBlocks * kUsualProcesses)};
    SelftestCases::Planned planned = cases_.plan(pair, kUsualProcesses, arguments);
    const SpeedMargin margin = margin_of(result_, kUsualProcesses, "this A/A");
    for (; live_ < form_.live; ++live_) {
      if (interrupt_count() > 0) throw Interrupted{};
      ++planned.job.prompt_seed;  // as in any other run, the engines are opened in another order
      const CaseReport report = cases_.run(planned, margin);
      if (!planned.job.judged) planned.job.judged = parity_memo(report);
      const ComparisonReport& comparison = comparison_of(report, pair);
      if (!comparison.ci) {
        live_problem_ =
            fmt::format("live A/A {}: no interval: {}", live_ + 1, comparison.speedup.reason);
        break;
      }
      live_excluding_one_ += comparison.ci->low > 1 || comparison.ci->high < 1;
      live_wrong_ += comparison.verdict == "FASTER" || comparison.verdict == "SLOWER";
      if (!cases_.settings().quiet)
        print_stderr("mkbench: clock: live A/A {} of {}: {:.4f} [{:.4f}, {:.4f}], {}\n", live_ + 1,
                     form_.live, *comparison.speedup.value, comparison.ci->low, comparison.ci->high,
                     comparison.verdict);
    }
    const int most = most_by_chance(live_, 1 - kConfidence);
    if (live_problem_.empty() && std::max(live_excluding_one_, live_wrong_) > most)
      live_problem_ =
          fmt::format("alpha {:g} allows at most {} runs of either kind", 1 - kConfidence, most);
    accepted_ = accepted_ && live_problem_.empty();
    print({.id = kCopiesRow,
           .what = "two copies, end to end",
           .found = fmt::format("{} runs, {} miss 1, {} FASTER or SLOWER", live_,
                                live_excluding_one_, live_wrong_),
           .problem = live_problem_,
           .open = {}});
  }

  static const ComparisonReport& comparison_of(const CaseReport& report,
                                               const std::vector<std::string>& pair) {
    for (const ComparisonReport& c : report.comparisons) {
      if ((c.baseline == pair[0] && c.candidate == pair[1]) ||
          (c.baseline == pair[1] && c.candidate == pair[0]))
        return c;
    }
    throw Error(ErrorKind::kRuntime, "selftest: the two copies were not compared");
  }

  // Stores the calibration unless calibration_problems() or the live A/A runs reject it, or a
  // slow-down of kMostUnseen or more was not SLOWER. Noise that hides 1 % only widens the margin.
  void store() {
    if (!accepted_) {
      fmt::print("Calibration not stored: A/A failed, or a slow-down of {} was not SLOWER.\n",
                 percent(kMostUnseen));
      return;
    }
    ClockCalibration calibration;
    static_cast<Calibration&>(calibration) = result_;
    calibration.date = utc_now("%Y-%m-%dT%H:%M:%SZ");
    calibration.machine = machine();
    calibration.build = build_id();
    calibration.engine = cases_.cuda() ? "plain megakernel" : "naive_cpu";
    calibration.live = live_;
    calibration.live_excluding_one = live_excluding_one_;
    calibration.live_faster_or_slower = live_wrong_;
    fmt::print("calibration: {}\n", write_clock(calibration).string());
  }

  const SelftestCases& cases_;
  const ClockForm form_;
  std::vector<std::string> libraries_, paths_;
  std::vector<RecordedRound> rounds_;
  Calibration result_;
  double seconds_ = 0;
  bool accepted_ = false;
  int live_ = 0, live_excluding_one_ = 0, live_wrong_ = 0;
  std::string live_problem_;
  ClockTally tally_;
};

}  // namespace

bool has_clock_rows(const SelftestSettings& settings) {
  return settings.rows.empty() ||
         std::any_of(settings.rows.begin(), settings.rows.end(), [](const std::string& row) {
           const auto is_row = [&](const SlowLibrary& slow) { return row == slow.row; };
           return row == kCopiesRow ||
                  std::any_of(std::begin(kSlowLibraries), std::end(kSlowLibraries), is_row);
         });
}

void find_clock_libraries(const SelftestCases& cases) { ClockLane lane(cases); }

ClockTally selftest_clock(const SelftestCases& cases) { return ClockLane(cases).run(); }

}  // namespace mkbench
