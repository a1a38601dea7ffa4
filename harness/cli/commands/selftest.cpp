// `mkbench selftest --faults`: plants every fault of harness/selftest/fault_table.h and shows which
// checks see it. Each lane runs in a host, so a crash or a hang fails that lane alone.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "harness/cli/commands/selftest_case.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/machine.h"
#include "harness/report/print_stderr.h"
#include "harness/report/verdict.h"
#include "harness/selftest/fault_table.h"
#include "harness/selftest/lanes.h"
#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/parallel.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

// Without -v, a line of progress is printed after each kLanesOfProgress lanes.
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
                fmt::format("fault table: a lane names row '{}', which does not exist", lane.row));
  }
  return *found;
}

// Probes the machine; with --device cpu there is no GPU.
MachineProbe probe_machine(const SelftestSettings& settings, const Invocation& invocation) {
  if (settings.device == DeviceChoice::kCpu) return {};
  Hosts hosts(invocation.start_host, settings.timeout_s);
  const CardCall call{.gpu = settings.gpu, .models = settings.models};
  MachineProbe probe = probe_of(examine_machine(hosts, call), settings.gpu);
  if (!probe.usable && settings.device == DeviceChoice::kCuda) {
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("selftest --device cuda: {}", probe.reason));
  }
  return probe;
}

// Runs lanes on several threads. Each thread has its own hosts, which end with it, so a crash or a
// hang costs its own lane only. Lanes of CUDA engines run on the calling thread, one after another.
class Lanes {
 public:
  Lanes(const SelftestSettings& settings, const StartHost& start_host,
        const std::vector<FaultLane>& lanes)
      : settings_(settings),
        start_host_(start_host),
        lanes_(lanes),
        results_(lanes.size()),
        runner_([](const EngineRequest& request,
                   const ModelWeights& weights) { return thread_hosts->open(request, weights); },
                settings.gpu) {
    for (size_t lane = 0; lane < lanes.size(); ++lane)
      (lane_info(lanes[lane].lane).cuda ? cuda_ : host_).push_back(lane);
  }

  void run() {
    {
      const auto cores = static_cast<size_t>(thread_count(0));
      std::vector<std::jthread> team;
      for (size_t t = 0; t < std::min(cores, host_.size()); ++t) {
        team.emplace_back([this] {
          Hosts hosts(start_host_, settings_.timeout_s);
          thread_hosts = &hosts;
          for (size_t i; (i = next_.fetch_add(1)) < host_.size();) run_lane(host_[i]);
        });
      }
    }
    Hosts hosts(start_host_, settings_.timeout_s);
    thread_hosts = &hosts;
    for (const size_t lane : cuda_) run_lane(lane);
  }

  const std::optional<LaneResult>& result(size_t lane) const { return results_[lane]; }

 private:
  void run_lane(size_t index) {
    if (interrupt_count() > 0) return;
    const FaultLane& lane = lanes_[index];
    LaneOutcome outcome;
    try {
      outcome = runner_.run(lane);
    } catch (const Interrupted&) {
      return;
    } catch (const std::exception& error) {
      outcome = {.failing = {"error"}, .r_rms = {}, .note = error.what()};
    }
    std::string text = surprise(lane, outcome);
    const std::lock_guard lock(mutex_);
    results_[index] = {std::move(outcome), std::move(text)};
    ++done_;
    if (!settings_.quiet && (settings_.verbose || done_ % kLanesOfProgress == 0)) {
      print_stderr("mkbench: {} of {} lanes\n", done_, lanes_.size());
    }
  }

  static thread_local Hosts* thread_hosts;

  const SelftestSettings& settings_;
  const StartHost& start_host_;
  const std::vector<FaultLane>& lanes_;
  std::vector<std::optional<LaneResult>> results_;
  LaneRunner runner_;
  std::vector<size_t> host_, cuda_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;  // guards results_ and done_
  size_t done_ = 0;
};

thread_local Hosts* Lanes::thread_hosts = nullptr;

struct Tally {
  int right = 0, all = 0;
};

// Width of the printed table's model column: that of the longest name, at least of "tiny-untied".
size_t model_width(const std::vector<FaultLane>& lanes) {
  size_t width = std::string_view("tiny-untied").size();
  for (const FaultLane& lane : lanes) width = std::max(width, lane.model.size());
  return width;
}

void print_lane(const FaultLane& lane, const LaneResult& result, size_t model_width) {
  const FaultRow& row = row_of(lane);
  const bool right = result.surprise.empty();
  const std::string failing = result.outcome.failing.empty()
                                  ? "-"
                                  : fmt::format("{}", fmt::join(result.outcome.failing, ","));
  const std::string value =
      result.outcome.r_rms ? fmt::format("{:.3g}", *result.outcome.r_rms) : "-";
  fmt::print("{:<4} {:<50.50} {:<12} {:<{}} {:>8} {:<8} {}\n", row.id, row.what,
             lane_info(lane.lane).name, lane.model, model_width, value,
             row.control ? (right ? "passed" : "FAILED") : (right ? "seen" : "NOT SEEN"), failing);
  if (right) return;
  fmt::print("     {}; {}\n", result.surprise,
             result.outcome.note.empty() ? "no reason given" : result.outcome.note);
}

// All lanes of the fault table, or with --model the lanes for these models.
std::vector<FaultLane> planned_lanes(const SelftestSettings& settings, const MachineProbe& probe) {
  if (settings.models.empty()) return fault_lanes();
  std::vector<FaultLane> lanes;
  for (const std::string& model : settings.models) {
    const ModelRow* row = find_model(model);
    if (row == nullptr) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("mkbench selftest: --model: found {}, wanted synthetic:SHAPE or one "
                              "of the trained models that mkbench list names",
                              in_quotes(model, 300)));
    }
    if (!is_analytic(row)) {
      const std::vector<FaultLane> of_model = committed_lanes(*row);
      lanes.insert(lanes.end(), of_model.begin(), of_model.end());
      continue;
    }
    const auto obstacle = probe.ring_obstacles.find(model);
    const bool ring = obstacle != probe.ring_obstacles.end() && obstacle->second.empty();
    if (probe.usable && !ring && obstacle != probe.ring_obstacles.end())
      print_stderr("mkbench: {}: no faults planted in ring: {}\n", model, obstacle->second);
    const std::vector<FaultLane> of_model = shape_lanes(model, probe.usable, ring);
    lanes.insert(lanes.end(), of_model.begin(), of_model.end());
  }
  return lanes;
}

// The lanes to run: those of --rows, without CUDA lanes if there is no usable GPU.
std::vector<FaultLane> wanted_lanes(const SelftestSettings& settings, const MachineProbe& probe) {
  std::vector<FaultLane> wanted;
  for (const FaultLane& lane : planned_lanes(settings, probe)) {
    const bool asked =
        settings.rows.empty() ||
        std::find(settings.rows.begin(), settings.rows.end(), lane.row) != settings.rows.end();
    if (asked && (probe.usable || !lane_info(lane.lane).cuda)) wanted.push_back(lane);
  }
  if (wanted.empty())
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --rows: found no fault that can run here");
  return wanted;
}

// Prints the faults that no lane plants, and what covers each of them instead.
void print_elsewhere() {
  fmt::print("\nNot planted here:\n");
  for (const FaultRow& row : fault_rows()) {
    const bool has_lane = std::any_of(fault_lanes().begin(), fault_lanes().end(),
                                      [&](const FaultLane& lane) { return lane.row == row.id; });
    if (!has_lane) fmt::print("{:<4} {}: {}\n", row.id, row.what, row.elsewhere);
  }
}

}  // namespace

int selftest_timing(const SelftestSettings& settings, const Invocation& invocation,
                    const MachineProbe& probe);

namespace {

std::vector<Flag<SelftestSettings>> selftest_flags() {
  using S = SelftestSettings;
  return {
      flag("faults",
           "Plant the known faults of arithmetic: each must fail its checks, and no control may.",
           &S::faults),
      flag("timing",
           "Run plugins with timing faults (T1-T15): each must end with its expected verdict.",
           &S::timing),
      flag("calibrate",
           "With --timing: calibrate the clock in at least 60 processes and store the result for "
           "later runs on this machine.",
           &S::calibrate),
      flag("libraries DIR", "With --timing: folder of these plugins [tests/plugins of the build].",
           &S::libraries),
      hidden(flag("rows LIST", "Run only these faults, by id [all].", &S::rows, parse_word_list)),
      flag("model LIST",
           "With --faults: synthetic:SHAPE, whose four layers get the faults that depend on the "
           "shape, or a trained model such as tiny-llama, which gets the host twin's [all faults].",
           &S::models, parse_word_list),
  };
}

int selftest_command(const SelftestSettings& settings, const Invocation& invocation) {
  if (settings.faults == settings.timing)
    throw Error(ErrorKind::kBadInput, "mkbench selftest: give one of --faults and --timing");
  if (settings.calibrate && !settings.timing)
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --calibrate goes with --timing");
  if (settings.timing && !settings.models.empty())
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --model goes with --faults");
  const MachineProbe probe = probe_machine(settings, invocation);
  if (settings.timing) return selftest_timing(settings, invocation, probe);
  const std::vector<FaultLane> wanted = wanted_lanes(settings, probe);
  Lanes lanes(settings, invocation.start_host, wanted);
  lanes.run();
  const bool interrupted = interrupt_count() > 0;

  const size_t width = model_width(wanted);
  fmt::print("{:<4} {:<50} {:<12} {:<{}} {:>8} {:<8} {}\n", "row", "fault", "lane", "model", width,
             "R_rms", "", "failing checks");
  Tally faults, controls;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!lanes.result(i)) continue;  // the run was interrupted before this lane
    const LaneResult& result = *lanes.result(i);
    Tally& tally = row_of(wanted[i]).control ? controls : faults;
    ++tally.all;
    tally.right += result.surprise.empty();
    print_lane(wanted[i], result, width);
  }
  if (interrupted) {
    fmt::print("\ninterrupted: {} of {} lanes were run\n", faults.all + controls.all,
               wanted.size());
    return exit_code(Verdict::kInterrupted);
  }
  if (settings.rows.empty() && settings.models.empty()) print_elsewhere();
  fmt::print("\nfaults seen {} of {}, controls passed {} of {}\n", faults.right, faults.all,
             controls.right, controls.all);
  const bool all_right = faults.right == faults.all && controls.right == controls.all;
  return all_right ? 0 : exit_code(Verdict::kIntegrity);
}

}  // namespace

CommandRow selftest_row() {
  return command_row<SelftestSettings>("selftest", "plant faults, and show which checks see them",
                                       "",
                                       flags_of<SelftestSettings>(selftest_flags(), device_flags(),
                                                                  card_flags(), in_process_flags()),
                                       nullptr, selftest_command);
}

}  // namespace mkbench
