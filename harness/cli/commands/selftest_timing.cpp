// `mkbench selftest --timing`: runs the plugin engines with timing faults as `mkbench run` would,
// each beside the sound engine, and shows the verdict of each.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "harness/cli/commands/audit.h"
#include "harness/cli/commands/selftest_case.h"
#include "harness/cli/commands/selftest_clock.h"
#include "harness/cli/plan.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/machine.h"
#include "harness/report/print_stderr.h"
#include "harness/selftest/timing_faults.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

using Outcomes = std::map<std::string_view, TimingOutcome>;  // by library
using Faults = std::vector<const TimingFault*>;

constexpr int kMostTries = 3;

bool has_lane(const TimingFault& fault, bool cuda) { return cuda ? fault.cuda : fault.cpu; }

// Runs the rows of the timing faults on one device, case after case. All libraries are looked for
// beforehand, because a missing one would end the run after minutes of other rows.
class TimingLanes {
 public:
  TimingLanes(const SelftestSettings& settings, const Invocation& invocation,
              const MachineProbe& probe, bool cuda)
      : cases_(settings, invocation, probe, cuda) {
    for (const TimingFault& fault : timing_faults()) {
      const bool asked =
          settings.rows.empty() ||
          std::find(settings.rows.begin(), settings.rows.end(), fault.id) != settings.rows.end();
      if (!asked || !has_lane(fault, cuda) || settings.calibrate) continue;
      rows_.push_back(&fault);
      for (const TimingEngine& engine : fault.engines) cases_.path_of("timing", engine.library);
    }
    if (!rows_.empty()) cases_.path_of("timing", kSoundLibrary);
  }

  size_t size() const { return rows_.size(); }
  const SelftestCases& cases() const { return cases_; }

  void run() {
    for (const TimingRunInfo& info : timing_runs()) {
      Faults together, alone;
      for (const TimingFault* fault : rows_) {
        if (fault->run == info.run) (fault->alone ? alone : together).push_back(fault);
      }
      if (together.empty() && alone.empty()) continue;
      // Rows that run alone compare the sound engine's time beside them with its time in `shared`.
      Outcomes shared = settled_case(info, together, nullptr);
      tell(together, shared, shared);
      for (const TimingFault* fault : alone) {
        const Outcomes outcomes = settled_case(info, {fault}, &shared);
        tell({fault}, outcomes, shared);
      }
    }
  }

  int wrong() const { return wrong_; }

 private:
  // Runs the sound engine and the libraries of `faults` in one case.
  Outcomes run_case_of(const TimingRunInfo& info, const Faults& faults) {
    std::vector<std::string_view> libraries = {kSoundLibrary};
    for (const TimingFault* fault : faults) {
      for (const TimingEngine& engine : fault->engines) libraries.push_back(engine.library);
    }
    std::vector<std::string> paths, arguments = info.options;
    for (const std::string_view library : libraries)
      paths.push_back(cases_.path_of("timing", library));
    const auto& of_device = cases_.cuda() ? info.cuda : info.cpu;
    arguments.insert(arguments.end(), of_device.begin(), of_device.end());
    SelftestCases::Planned planned = cases_.plan(paths, info.processes, arguments);
    planned.job.observed = info.run == TimingRun::kObserved;
    if (!cases_.settings().quiet)
      print_stderr("mkbench: {}: {} libraries\n", case_name(planned.job), libraries.size());
    const CaseReport report = cases_.run(planned);
    Outcomes outcomes;
    for (size_t i = 0; i < libraries.size(); ++i)
      outcomes[libraries[i]] = timing_outcome(engine_of(report, paths[i]));
    for (const ComparisonReport& c : report.comparisons) {
      for (size_t i = 1; i < libraries.size(); ++i) {
        if (c.baseline == paths[0] && c.candidate == paths[i])
          outcomes[libraries[i]].against_sound = c.verdict;
      }
    }
    blocks_ = planned.job.blocks;
    return outcomes;
  }

  // Runs a case, up to kMostTries times while a ratio of times lies outside its band, as other
  // programs can cause that. `shared`, unless null: outcomes of the sound engine without `faults`,
  // measured again before each new try.
  Outcomes settled_case(const TimingRunInfo& info, const Faults& faults, Outcomes* shared) {
    for (int tries = 1;; ++tries) {
      Outcomes outcomes = run_case_of(info, faults);
      const bool missed = std::any_of(faults.begin(), faults.end(), [&](const TimingFault* fault) {
        return std::any_of(fault->engines.begin(), fault->engines.end(), [&](const auto& engine) {
          return !times_problem(*fault, engine, outcomes, shared != nullptr ? *shared : outcomes)
                      .empty();
        });
      });
      if (!missed || tries == kMostTries) return outcomes;
      if (shared != nullptr) *shared = run_case_of(info, {});
    }
  }

  std::string times_problem(const TimingFault& fault, const TimingEngine& engine,
                            const Outcomes& outcomes, const Outcomes& shared) const {
    const TimingBand& band = cases_.cuda() ? fault.cuda_times : fault.cpu_times;
    const TimingOutcome& sound = outcomes.at(kSoundLibrary);
    return band.compared == TimesCompared::kSoundAlone
               ? times_surprise(band, sound, shared.at(kSoundLibrary))
               : times_surprise(band, outcomes.at(engine.library), sound);
  }

  void tell(const Faults& faults, const Outcomes& outcomes, const Outcomes& shared) {
    const TimingOutcome& sound = outcomes.at(kSoundLibrary);
    print_row("-", "control: the sound engine in this case",
              {kSoundLibrary, {{Verdict::kPass, ""}}}, sound, control_surprise(sound, blocks_));
    for (const TimingFault* fault : faults) {
      for (const TimingEngine& engine : fault->engines) {
        const TimingOutcome& found = outcomes.at(engine.library);
        std::string problem = surprise(engine, found);
        if (problem.empty()) problem = times_problem(*fault, engine, outcomes, shared);
        print_row(fault->id, fault->what, engine, found, problem);
      }
      if (!fault->audit.empty()) audit(*fault);
    }
  }

  // `mkbench audit` of the row's libraries and of the sound engine. The seed is fixed, because one
  // random choice of tiles in a hundred misses the 5 % of the head that T8 does not read.
  void audit(const TimingFault& fault) {
    std::vector<std::string_view> libraries = {kSoundLibrary};
    for (const TimingEngine& engine : fault.engines) libraries.push_back(engine.library);
    std::vector<std::string> paths;
    for (const std::string_view library : libraries)
      paths.push_back(cases_.path_of("timing", library));
    std::vector<std::string> args = {"audit", "--model",   "tiny",        "--n-gen",
                                     "31",    "--seed",    "1",           "--method",
                                     "tiles", "--tensors", "embed_tokens"};
    args.insert(args.end(), {"--device", cases_.cuda() ? "cuda" : "cpu"});
    args.insert(args.end(), {"--gpu", std::to_string(cases_.settings().gpu)});
    args.insert(args.end(), {"--engine", fmt::format("{}", fmt::join(paths, ","))});
    AuditSettings audit = parse_command_line(args).as<AuditSettings>();
    audit.quiet = cases_.settings().quiet;
    Hosts hosts(cases_.invocation().start_host, audit.timeout_s);
    const std::vector<CaseJob> jobs = plan_run(audit, cases_.probe()).jobs;
    const AuditedCase audited = audit_cases(jobs, audit, cases_.invocation(), hosts, {}).front();
    for (size_t i = 0; i < libraries.size(); ++i) {
      const EngineAudit& found = audited.engines[i];
      const std::vector<TimingEnd> ends =
          i == 0 ? std::vector<TimingEnd>{{Verdict::kPass, ""}} : fault.audit;
      print_row(i == 0 ? "-" : fault.id,
                i == 0 ? "control: the sound engine in this audit" : "the same by mkbench audit",
                {libraries[i], ends}, {found.verdict, found.reasons},
                end_surprise(ends, found.verdict, found.reasons));
    }
  }

  void print_row(std::string_view id, std::string_view what, const TimingEngine& engine,
                 const TimingOutcome& found, const std::string& problem) {
    fmt::print("{:<4} {:<4} {:<60.60} {:<18} {:<23} {:<13} {:>9} {}\n", id,
               cases_.cuda() ? "cuda" : "cpu", what, fs::path(engine.library).filename().string(),
               names_of(engine.ends), verdict_name(found.verdict),
               found.fastest_ms > 0 ? fmt::format("{:.4g}", found.fastest_ms) : "-",
               problem.empty() ? "ok" : "WRONG");
    if (!found.reasons.empty()) fmt::print("     {}\n", found.reasons.front());
    if (problem.empty()) return;
    ++wrong_;
    fmt::print("     {}\n", problem);
  }

  const SelftestCases cases_;
  Faults rows_;
  int blocks_ = 0;  // of the case that ran last
  int wrong_ = 0;
};

}  // namespace

int selftest_timing(const SelftestSettings& settings, const Invocation& invocation,
                    const MachineProbe& probe) {
  if (invocation.in_process)
    throw Error(ErrorKind::kBadInput,
                "selftest --timing: its engines crash and hang; run it without --in-process");
  std::vector<TimingLanes> devices;
  if (settings.device != DeviceChoice::kCuda)
    devices.emplace_back(settings, invocation, probe, false);
  if (probe.usable) devices.emplace_back(settings, invocation, probe, true);
  size_t rows = 0;
  for (const TimingLanes& lanes : devices) rows += lanes.size();
  const bool clock = has_clock_rows(settings);
  if (rows == 0 && !clock)
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --rows: found no fault that can run here");
  if (clock)
    for (const TimingLanes& lanes : devices) find_clock_libraries(lanes.cases());
  int wrong = 0, open = 0;
  if (rows > 0) {
    fmt::print("{:<4} {:<4} {:<60} {:<18} {:<23} {:<13} {:>9}\n", "row", "on",
               "what the engine does", "library", "wanted", "found", "ms/tok");
  }
  for (TimingLanes& lanes : devices) {
    lanes.run();
    wrong += lanes.wrong();
  }
  for (const TimingLanes& lanes : devices) {
    if (!clock) break;
    const ClockTally tally = selftest_clock(lanes.cases());
    rows += static_cast<size_t>(tally.rows);
    wrong += tally.wrong;
    open += tally.open;
  }
  fmt::print("\n{} rows of the faults of timing: {} not as wanted, {} open\n", rows, wrong, open);
  return wrong == 0 ? 0 : exit_code(Verdict::kIntegrity);
}

}  // namespace mkbench
