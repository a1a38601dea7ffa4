// `mkbench selftest --timing`: runs the libraries of the faults of timing as `mkbench run` would,
// each beside the sound engine, and shows how each ended.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "harness/flow/case_flow.h"
#include "harness/flow/interrupt.h"
#include "harness/parent/collector.h"
#include "harness/parent/commands/audit.h"
#include "harness/parent/host_services.h"
#include "harness/parent/machine.h"
#include "harness/parent/options.h"
#include "harness/parent/plan.h"
#include "harness/selftest/timing_faults.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

using Outcomes = std::map<std::string_view, TimingOutcome>;  // by library
using Faults = std::vector<const TimingFault*>;

constexpr int kMostTries = 3;

bool has_lane(const TimingFault& fault, bool cuda) { return cuda ? fault.cuda : fault.cpu; }

// Cases of one device, run one after another, and their rows of the table.
class TimingLanes {
 public:
  TimingLanes(const Options& options, const Invocation& invocation, const MachineProbe& probe,
              bool cuda)
      : options_(options), invocation_(invocation), probe_(probe), cuda_(cuda) {
    for (const TimingFault& fault : timing_faults()) {
      const bool asked = options.rows.empty() || std::find(options.rows.begin(), options.rows.end(),
                                                           fault.id) != options.rows.end();
      if (asked && has_lane(fault, cuda)) rows_.push_back(&fault);
    }
  }

  size_t size() const { return rows_.size(); }

  void run() {
    for (const TimingRunInfo& info : timing_runs()) {
      Faults together, alone;
      for (const TimingFault* fault : rows_) {
        if (fault->run == info.run) (fault->alone ? alone : together).push_back(fault);
      }
      if (together.empty() && alone.empty()) continue;
      // Rows that stand alone compare the sound engine's time with that of this case.
      const Outcomes shared = settled_case(info, together, {});
      tell(together, shared, shared);
      for (const TimingFault* fault : alone)
        tell({fault}, settled_case(info, {fault}, shared), shared);
    }
  }

  int wrong() const { return wrong_; }
  int open() const { return open_; }

 private:
  std::string path_of(std::string_view library) const {
    const fs::path folder =
        options_.libraries.empty()
            ? fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "tests" / "plugins"
            : fs::path(options_.libraries);
    const fs::path path =
        folder / (cuda_ ? "timing-cuda" : "timing-cpu") / (std::string(library) + ".so");
    if (!fs::is_regular_file(path)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("selftest --timing: no library {}: build the target timing_{}, or "
                              "name the folder of tests/plugins with --libraries",
                              path.lexically_normal().string(), cuda_ ? "cuda" : "cpu"));
    }
    return path.lexically_normal().string();
  }

  // The case as `mkbench run` plans it.
  CaseJob plan(const TimingRunInfo& info, const std::vector<std::string>& paths,
               double& timeout_s) const {
    std::vector<std::string> args = {"run",
                                     "--model",
                                     "tiny",
                                     "--compare",
                                     "none",
                                     "--device",
                                     cuda_ ? "cuda" : "cpu",
                                     "--gpu",
                                     std::to_string(options_.gpu),
                                     "--engine",
                                     fmt::format("{}", fmt::join(paths, ","))};
    for (const auto* options : {&info.options, cuda_ ? &info.cuda : &info.cpu})
      args.insert(args.end(), options->begin(), options->end());
    const ParsedCommandLine parsed =
        parse_command_line(args, [](const std::string&) { return std::nullopt; }, {});
    timeout_s = parsed.options.timeout_s;
    return plan_run(parsed.options, probe_).jobs.front();
  }

  // Runs the sound engine and the libraries of `faults` in one case.
  Outcomes run_case_of(const TimingRunInfo& info, const Faults& faults) {
    std::vector<std::string_view> libraries = {kSoundLibrary};
    std::vector<std::string> paths;
    for (const TimingFault* fault : faults) {
      for (const TimingEngine& engine : fault->engines) libraries.push_back(engine.library);
    }
    for (const std::string_view library : libraries) paths.push_back(path_of(library));
    double timeout_s = 0;
    const CaseJob job = plan(info, paths, timeout_s);
    if (!options_.quiet)
      fmt::print(stderr, "mkbench: {}: {} libraries\n", case_name(job), libraries.size());
    CaseCollector collector(job);
    EventSink sink([&](const CaseEvent& event) { collector.take(event); });
    Hosts hosts(invocation_.start_host, timeout_s);
    run_case(job, make_services(job, hosts), sink);
    collector.finish(interrupt_count() > 0);
    if (collector.interrupted() || interrupt_count() > 0) throw Interrupted{};
    CaseReport& report = collector.report();
    aggregate(report, job.confidence, job.seed, job.random_order);
    for (const std::string& reason : report.reasons)
      fmt::print(stderr, "mkbench: {}: {}\n", report.name, reason);
    Outcomes outcomes;
    for (size_t i = 0; i < libraries.size(); ++i) {
      const auto engine =
          std::find_if(report.engines.begin(), report.engines.end(),
                       [&](const EngineReport& e) { return e.flow_name == paths[i]; });
      outcomes[libraries[i]] = timing_outcome(*engine);
    }
    blocks_ = job.blocks;
    return outcomes;
  }

  // The case, again where a ratio of its times left its band, which other programs can bring about.
  Outcomes settled_case(const TimingRunInfo& info, const Faults& faults, const Outcomes& shared) {
    for (int tries = 1;; ++tries) {
      Outcomes outcomes = run_case_of(info, faults);
      const bool missed = std::any_of(faults.begin(), faults.end(), [&](const TimingFault* fault) {
        return std::any_of(fault->engines.begin(), fault->engines.end(), [&](const auto& engine) {
          return !times_problem(*fault, engine, outcomes, shared.empty() ? outcomes : shared)
                      .empty();
        });
      });
      if (!missed || tries == kMostTries) return outcomes;
    }
  }

  std::string times_problem(const TimingFault& fault, const TimingEngine& engine,
                            const Outcomes& outcomes, const Outcomes& shared) const {
    const TimingBand& band = cuda_ ? fault.cuda_times : fault.cpu_times;
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
      if (fault->open.empty()) continue;
      ++open_;
      fmt::print("     open: {}\n", fault->open);
    }
  }

  // `mkbench audit` of the row's libraries, and of the sound engine beside them. The seed is fixed:
  // tiles miss 5 % of the head in one of a hundred runs.
  void audit(const TimingFault& fault) {
    std::vector<std::string_view> libraries = {kSoundLibrary};
    for (const TimingEngine& engine : fault.engines) libraries.push_back(engine.library);
    std::vector<std::string> paths;
    for (const std::string_view library : libraries) paths.push_back(path_of(library));
    const std::vector<std::string> args = {"audit",
                                           "--model",
                                           "tiny",
                                           "--device",
                                           cuda_ ? "cuda" : "cpu",
                                           "--gpu",
                                           std::to_string(options_.gpu),
                                           "--engine",
                                           fmt::format("{}", fmt::join(paths, ",")),
                                           "--n-gen",
                                           "31",
                                           "--seed",
                                           "1",
                                           "--method",
                                           "tiles",
                                           "--tensors",
                                           "embed_tokens"};
    Options options =
        parse_command_line(args, [](const std::string&) { return std::nullopt; }, {}).options;
    options.quiet = options_.quiet;
    Hosts hosts(invocation_.start_host, options.timeout_s);
    const AuditedCase audited = audit_cases(plan_run(options, probe_).jobs, options, invocation_,
                                            probe_.l2_bytes, hosts, {})
                                    .front();
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
    fmt::print("{:<4} {:<4} {:<60.60} {:<18} {:<23} {:<13} {:>9} {}\n", id, cuda_ ? "cuda" : "cpu",
               what, fs::path(engine.library).filename().string(), names_of(engine.ends),
               verdict_name(found.verdict),
               found.fastest_ms > 0 ? fmt::format("{:.4g}", found.fastest_ms) : "-",
               problem.empty() ? "ok" : "WRONG");
    if (!found.reasons.empty()) fmt::print("     {}\n", found.reasons.front());
    if (problem.empty()) return;
    ++wrong_;
    fmt::print("     {}\n", problem);
  }

  const Options& options_;
  const Invocation& invocation_;
  const MachineProbe& probe_;
  const bool cuda_;
  Faults rows_;
  int blocks_ = 0;  // of the last case
  int wrong_ = 0, open_ = 0;
};

}  // namespace

int selftest_timing(const Options& options, const Invocation& invocation,
                    const MachineProbe& probe) {
  if (invocation.in_process)
    throw Error(ErrorKind::kBadInput,
                "selftest --timing: its engines crash and hang: no --in-process");
  std::vector<TimingLanes> devices;
  if (options.device != DeviceChoice::kCuda)
    devices.emplace_back(options, invocation, probe, false);
  if (probe.usable) devices.emplace_back(options, invocation, probe, true);
  size_t rows = 0;
  for (const TimingLanes& lanes : devices) rows += lanes.size();
  if (rows == 0)
    throw Error(ErrorKind::kBadInput, "mkbench selftest: --rows: no such row has a lane here");
  fmt::print("{:<4} {:<4} {:<60} {:<18} {:<23} {:<13} {:>9}\n", "row", "on", "what the engine does",
             "library", "wanted", "found", "ms/tok");
  int wrong = 0, open = 0;
  for (TimingLanes& lanes : devices) {
    lanes.run();
    wrong += lanes.wrong();
    open += lanes.open();
  }
  fmt::print("\n{} rows of the faults of timing: {} not as wanted, {} open\n", rows, wrong, open);
  return wrong == 0 ? 0 : exit_code(Verdict::kIntegrity);
}

}  // namespace mkbench
