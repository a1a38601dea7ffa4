// `mkbench selftest --faults`: plants every fault of the table and shows which check saw it. Lanes
// run in hosts, so a crash or a hang fails its own lane only.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "harness/parent/launch.h"
#include "harness/parent/options.h"
#include "harness/parent/supervisor.h"
#include "harness/report/verdict.h"
#include "harness/selftest/fault_table.h"
#include "harness/flow/interrupt.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Without -v, one line of progress is printed for so many lanes.
constexpr size_t kLanesOfProgress = 10;

struct LaneResult {
  LaneOutcome outcome;
  std::string surprise;  // empty: the lane ended as expected
};

const FaultRow& row_of(const FaultLane& lane) {
  const auto found = std::find_if(fault_rows().begin(), fault_rows().end(),
                                  [&](const FaultRow& row) { return row.id == lane.row; });
  if (found == fault_rows().end()) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("fault table: a lane of row '{}', which is not there", lane.row));
  }
  return *found;
}

bool gpu_usable(const Options& options) {
  const auto answer = ask_worker<ProbeAnswer>(ProbeJob{options.gpu}, options.timeout_s);
  const bool usable = answer.ok() && answer.message->usable;
  if (!usable && options.device == DeviceChoice::kCuda) {
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("selftest --device cuda: {}",
                            answer.ok() ? answer.message->reason : answer.problem));
  }
  return usable;
}

// Starts hosts until every lane has a result.
class Lanes {
 public:
  Lanes(const Options& options, std::set<size_t> wanted)
      : options_(options), pending_(std::move(wanted)), results_(fault_lanes().size()) {}

  void run() {
    const size_t all = pending_.size();
    while (!pending_.empty() && interrupt_count() == 0) {
      const size_t before = pending_.size();
      const SelftestJob job{options_.gpu, {pending_.begin(), pending_.end()}};
      started_.clear();
      const WorkerEnd end = run_worker(job, {.deadline_s = options_.timeout_s},
                                       [&](const FromHost& message) { take(message, all); });
      if (pending_.empty()) return;
      // Lanes that had started and have no result when the host ends are lost. Where there is no
      // such lane and none has ended either, all lanes are lost.
      std::set<size_t> lost;
      for (const size_t lane : started_) {
        if (pending_.count(lane) > 0) lost.insert(lane);
      }
      if (lost.empty() && before == pending_.size()) lost = pending_;
      for (const size_t lane : lost) finish(lane, {{describe(end)}, std::nullopt, how(end)});
    }
  }

  const std::optional<LaneResult>& result(size_t lane) const { return results_[lane]; }

 private:
  static std::string describe(const WorkerEnd& end) {
    using How = WorkerEnd::How;
    return end.how == How::kHung || end.how == How::kTimedOut ? "hang" : "crash";
  }
  static std::string how(const WorkerEnd& end) {
    if (end.how == WorkerEnd::How::kSignalled) return "the worker died by " + signal_text(end.code);
    return fmt::format("the worker ended without an answer after {:.0f} s", end.seconds);
  }

  void finish(size_t lane, LaneOutcome outcome) {
    std::string text = surprise(fault_lanes()[lane], outcome);
    results_[lane] = {std::move(outcome), std::move(text)};
    pending_.erase(lane);
  }

  void take(const FromHost& message, size_t all) {
    if (const auto* started = std::get_if<LaneStarted>(&message)) started_.insert(started->lane);
    const auto* lane = std::get_if<LaneDone>(&message);
    if (lane == nullptr) return;
    finish(lane->lane, {lane->failing, lane->r_rms, lane->note});
    const size_t done = all - pending_.size();
    if (!options_.quiet && (options_.verbose || done % kLanesOfProgress == 0)) {
      fmt::print(stderr, "mkbench: {} of {} lanes\n", done, all);
    }
  }

  const Options& options_;
  std::set<size_t> pending_, started_;
  std::vector<std::optional<LaneResult>> results_;
};

struct Tally {
  int right = 0, all = 0;
};

void print_lane(const FaultLane& lane, const LaneResult& result) {
  const FaultRow& row = row_of(lane);
  const bool right = result.surprise.empty();
  const std::string failing = result.outcome.failing.empty()
                                  ? "-"
                                  : fmt::format("{}", fmt::join(result.outcome.failing, ","));
  const std::string value =
      result.outcome.r_rms ? fmt::format("{:.3g}", *result.outcome.r_rms) : "-";
  fmt::print("{:<4} {:<50.50} {:<12} {:<11} {:>8} {:<8} {}\n", row.id, row.what,
             lane_info(lane.lane).name, lane.model, value,
             row.control ? (right ? "passed" : "FAILED") : (right ? "seen" : "NOT SEEN"), failing);
  if (right) return;
  fmt::print("     {}; {}\n", result.surprise,
             result.outcome.note.empty() ? "no reason given" : result.outcome.note);
}

// Prints the rows that have no lane, and what covers them instead.
void print_elsewhere() {
  fmt::print("\nNot planted here:\n");
  for (const FaultRow& row : fault_rows()) {
    const bool has_lane = std::any_of(fault_lanes().begin(), fault_lanes().end(),
                                      [&](const FaultLane& lane) { return lane.row == row.id; });
    if (!has_lane) fmt::print("{:<4} {}: {}\n", row.id, row.what, row.elsewhere);
  }
}

}  // namespace

int selftest_command(const Options& options, const Invocation&) {
  if (!options.faults) {
    throw Error(ErrorKind::kBadInput, "mkbench selftest: there is only --faults; give it");
  }
  const bool with_cuda = options.device != DeviceChoice::kCpu && gpu_usable(options);
  std::set<size_t> wanted;
  for (size_t i = 0; i < fault_lanes().size(); ++i) {
    const FaultLane& lane = fault_lanes()[i];
    const bool asked = options.rows.empty() || std::find(options.rows.begin(), options.rows.end(),
                                                         lane.row) != options.rows.end();
    if (asked && (with_cuda || !lane_info(lane.lane).cuda)) wanted.insert(i);
  }
  if (wanted.empty()) {
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --rows: no such row has a lane here");
  }
  Lanes lanes(options, wanted);
  lanes.run();
  const bool interrupted = interrupt_count() > 0;

  fmt::print("{:<4} {:<50} {:<12} {:<11} {:>8} {:<8} {}\n", "row", "fault", "lane", "model",
             "R_rms", "", "failing checks");
  Tally faults, controls;
  for (const size_t i : wanted) {
    if (!lanes.result(i)) continue;  // the run was interrupted before this lane
    const LaneResult& result = *lanes.result(i);
    Tally& tally = row_of(fault_lanes()[i]).control ? controls : faults;
    ++tally.all;
    tally.right += result.surprise.empty();
    print_lane(fault_lanes()[i], result);
  }
  if (interrupted) {
    fmt::print("\ninterrupted: {} of {} lanes were run\n", faults.all + controls.all,
               wanted.size());
    return exit_code(Verdict::kInterrupted);
  }
  if (options.rows.empty()) print_elsewhere();
  fmt::print("\nfaults seen {} of {}, controls passed {} of {}\n", faults.right, faults.all,
             controls.right, controls.all);
  const bool all_right = faults.right == faults.all && controls.right == controls.all;
  return all_right ? 0 : exit_code(Verdict::kIntegrity);
}

}  // namespace mkbench
