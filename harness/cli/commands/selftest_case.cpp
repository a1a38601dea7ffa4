#include "harness/cli/commands/selftest_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/archive/collector.h"
#include "harness/cli/plan.h"
#include "harness/cli/run_settings.h"
#include "harness/flow/case_flow.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/host_services.h"
#include "harness/judge/conclude.h"
#include "harness/report/print_stderr.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {

namespace fs = std::filesystem;

std::string SelftestCases::path_of(std::string_view folder, std::string_view library) const {
  const char* device = cuda_ ? "cuda" : "cpu";
  const fs::path plugins = settings_.libraries.empty()
                               ? program_folder().parent_path() / "tests" / "plugins"
                               : fs::path(settings_.libraries);
  const fs::path path =
      plugins / fmt::format("{}-{}", folder, device) / fmt::format("{}.so", library);
  if (!fs::is_regular_file(path)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("selftest --timing: no library {}: build it by scripts/setup.sh{}, or "
                            "name the folder of tests/plugins with --libraries",
                            path.lexically_normal().string(), is_installed() ? " in a clone" : ""));
  }
  return path.lexically_normal().string();
}

SelftestCases::Planned SelftestCases::plan(const std::vector<std::string>& engines, int processes,
                                           const std::vector<std::string>& arguments) const {
  std::vector<std::string> args = {"run", "--model", "tiny", "--compare", "none"};
  args.insert(args.end(), {"--processes", std::to_string(processes)});
  args.insert(args.end(), {"--device", cuda_ ? "cuda" : "cpu"});
  args.insert(args.end(), {"--gpu", std::to_string(settings_.gpu)});
  args.insert(args.end(), {"--engine", fmt::format("{}", fmt::join(engines, ","))});
  args.insert(args.end(), arguments.begin(), arguments.end());
  const ParsedCommandLine parsed = parse_command_line(args);
  const auto& run = parsed.as<RunSettings>();
  Planned planned{plan_run(run, probe_).jobs.front(), run.timeout_s};
  planned.job.audited = planned.job.observed = false;  // they have rows of their own
  return planned;
}

CaseReport SelftestCases::run(const Planned& planned, const SpeedMargin& margin) const {
  const CaseJob& job = planned.job;
  CaseCollector collector(job);
  EventSink sink([&](const CaseEvent& event) { collector.take(event); });
  Hosts hosts(invocation_.start_host, planned.timeout_s);
  run_case(job, HostServices(job, hosts), sink);
  collector.finish(interrupt_count() > 0);
  if (collector.interrupted() || interrupt_count() > 0) throw Interrupted{};
  CaseReport& report = collector.report();
  aggregate(report, job.confidence, job.seed, job.random_order, margin);
  for (const std::string& reason : report.reasons)
    print_stderr("mkbench: {}: {}\n", report.name, reason);
  return std::move(report);
}

const EngineReport& engine_of(const CaseReport& report, const std::string& flow_name) {
  const auto found = std::find_if(report.engines.begin(), report.engines.end(),
                                  [&](const EngineReport& e) { return e.flow_name == flow_name; });
  if (found != report.engines.end()) return *found;
  throw Error(ErrorKind::kRuntime,
              fmt::format("selftest: the report of {} has no engine {}", report.name, flow_name));
}

}  // namespace mkbench
