// `mkbench profile --tool`: Nsight around the process of one engine, while it runs the blocks of a run.
#include "harness/parent/commands/profile.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "harness/device/ncu.h"
#include "harness/device/program_output.h"
#include "harness/flow/watched_blocks.h"
#include "harness/measure/kernel_figures.h"
#include "harness/parent/host_services.h"
#include "harness/parent/machine.h"
#include "harness/parent/option_values.h"
#include "harness/parent/plan.h"
#include "harness/parent/run_folder.h"
#include "harness/report/known_errors.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "references/snapshot_folder.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// A profiler slows kernels down, some of its passes manyfold: no wait inside a kernel may run out.
constexpr double kSpinScale = 100;

// One engine of one case under the tool.
struct Profiled {
  CaseJob job;
  std::string engine;
  NsightRun run;
  WatchedEngine told{};
  std::string problem{};  // one line; empty: the tool has left its report
  int exit_code = 0;
  std::vector<std::string> figures{};
};

NsightRun nsight_run(const Options& options, const std::string& program, const CaseJob& job,
                     const CaseEngine& engine, const fs::path& folder) {
  // ncu replays the launch of one block; nsys records all of them.
  const std::string range = *options.tool == ProfileTool::kNcu
                                ? block_label(engine.name, first_depth(job), 0).message
                                : blocks_range(job, engine);
  return {*options.tool,  program,       range, profile_stem(job, engine, folder, ".log"),
          options.kernel, options.launch};
}

HostCommand command_around(const NsightRun& run, const std::string& engine,
                           const Options& options) {
  HostCommand command = host_command(host_kind(engine), engine, options.python);
  std::vector<std::string> words = tool_command(run);
  words.insert(words.end(), command.argv.begin(), command.argv.end());
  command.argv = std::move(words);
  command.profiler_s = options.timeout_s;
  return command;
}

struct ToolEnd {
  int status = -1;     // as waitpid() gives it; -1: it did not end
  std::string said{};  // what it has printed
  bool began = false;  // the host under it has said hello
};

// What is to be said of the tool's end; sets the exit code, which is the tool's own where it has one.
// `failure`: why the engine, or the start of its process, failed; null: the engine ran to its end.
void judge_end(const Error* failure, const ToolEnd& ended, Profiled& one) {
  const std::string tool(tool_name(one.run.tool));
  const std::string complaint = tool_complaint(ended.said);
  const std::string told = complaint.empty() ? "" : ": " + complaint;
  const int end = ended.status;
  const bool left = WIFEXITED(end);
  if (counters_forbidden(ended.said)) {
    one.problem = fmt::format("{}: {}", tool, complaint);
    one.exit_code = exit_code(Verdict::kEnvUnfit);
  } else if (end != -1 && !left) {
    one.problem = fmt::format("{} died by {}{}", tool, signal_text(WTERMSIG(end)), told);
    one.exit_code = exit_code(Verdict::kRuntimeError);
  } else if (end != -1 && WEXITSTATUS(end) != 0) {
    one.problem = fmt::format("{} left with exit status {}{}", tool, WEXITSTATUS(end), told);
    one.exit_code = WEXITSTATUS(end);
  } else if (failure == nullptr && !fs::is_regular_file(report_file(one.run))) {
    one.problem =
        fmt::format("{} ended without an error and left no {}{}", tool, report_file(one.run), told);
    one.exit_code = exit_code(Verdict::kRuntimeError);
  }
  if (failure == nullptr) return;
  if (one.exit_code != 0 && !ended.began)
    return;  // the host never began: its failure repeats the tool's
  one.problem =
      one.problem.empty() ? failure->what() : fmt::format("{}; {}", one.problem, failure->what());
  if (one.exit_code == 0) one.exit_code = exit_code(verdict_of(failure->kind()));
}

void run_under_tool(const Options& options, const CaseEngine& engine, Profiled& one) {
  std::shared_ptr<HostProcess> host;
  Hosts hosts(
      [&](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
        if (holds != engine.name)
          return std::make_shared<HostProcess>(host_command(kind, holds, options.python));
        host = std::make_shared<HostProcess>(command_around(one.run, engine.name, options));
        return host;
      },
      options.timeout_s);
  std::optional<Error> failure;
  try {
    const FlowServices services = make_services(one.job, hosts);
    one.told = run_watched_blocks(one.job, engine, services, options.token_ranges);
  } catch (const Error& error) {
    failure = error;
  }
  if (host == nullptr) {
    one.problem = failure ? failure->what() : "no process of the engine was started";
    one.exit_code = exit_code(verdict_of(failure ? failure->kind() : ErrorKind::kRuntime));
    return;
  }
  const int status = host->leave();
  const ToolEnd ended{status, host->profiler_output(), !host->facts().program.empty()};
  write_text(one.run.output + ".log", ended.said);
  judge_end(failure ? &*failure : nullptr, ended, one);
}

// Adds the three figures of ncu's report, and keeps the table that they come from.
void read_figures(double pin_gb_per_s, Profiled& one) {
  const std::string table = ncu_raw_page(one.run.program, report_file(one.run));
  write_text(one.run.output + ".csv", table);
  const KernelFigures figures = parse_kernel_figures(table);
  if (!figures.problem.empty()) {
    one.problem = "no figures: " + figures.problem;
    one.exit_code = exit_code(Verdict::kRuntimeError);
    return;
  }
  const int n = one.job.n_gen;
  const ModelShape shape = model_config(one.job.model).shape;
  const KernelBounds bounds{.tokens = one.told.one_launch ? n : 0,
                            .bytes_token = static_cast<double>(
                                shape.bytes_per_step(first_depth(one.job) + (n - 1) / 2.0)),
                            .pin_gb_per_s = pin_gb_per_s};
  one.figures = figure_lines(figures, bounds);
  one.figures.insert(one.figures.begin(), "kernel: " + figures.kernel);
}

void print_profiled(const Profiled& one, bool asked_tokens) {
  fmt::print("{} on {} ({}) under {}: {}, nothing was judged or timed\n", one.engine,
             one.job.device, case_name(one.job), tool_name(one.run.tool),
             verdict_name(Verdict::kNotJudged));
  if (asked_tokens && !one.told.tokens && one.problem.empty())
    fmt::print("  no ranges of tokens: one launch decodes them all\n");
  if (fs::is_regular_file(report_file(one.run)))
    fmt::print("  report: {} (open it with: {})\n", report_file(one.run), open_command(one.run));
  for (const std::string& line : one.figures) fmt::print("  {}\n", line);
  std::fflush(stdout);
  if (one.problem.empty()) return;
  fmt::print(stderr, "mkbench: error: profile: {}: {}\n", one.engine, one.problem);
  for (const std::string& advice : advice_lines({one.problem}))
    fmt::print(stderr, "mkbench: {}\n", advice);
}

nlohmann::json json_of(const Profiled& one) {
  const bool there = fs::is_regular_file(report_file(one.run));
  return {{"model", one.job.model},
          {"device", one.job.device},
          {"engine", one.engine},
          {"resolved_name", one.told.resolved},
          {"n_depth", first_depth(one.job)},
          {"n_gen", one.job.n_gen},
          {"verdict", verdict_name(Verdict::kNotJudged)},
          {"range", one.run.range},
          {"command", tool_command(one.run)},
          {"report", there ? fs::path(report_file(one.run)).filename().string() : ""},
          {"problem", one.problem},
          {"figures", one.figures}};
}

int print_commands(const Options& options, const RunPlan& plan, const std::string& program) {
  for (const CaseJob& job : plan.jobs) {
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      const NsightRun run = nsight_run(options, program, job, engine, options.out);
      fmt::print("{}\n", shell_text(command_around(run, engine.name, options).argv));
    }
  }
  return 0;
}

void need_tool(ProfileTool tool, const std::string& program) {
  if (!program.empty()) return;
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("profile: {} ({}) is neither on PATH nor beside the CUDA toolkit",
                          tool_name(tool), product_name(tool)));
}

void need_ncu_for_launches(const Options& options) {
  if (options.tool == ProfileTool::kNcu) return;
  for (const char* flag : {"kernel", "launch"}) {
    if (was_given(options, flag))
      bad_usage(fmt::format("profile: --{}: it chooses the launch that --tool ncu replays", flag));
  }
}

}  // namespace

MachineProbe probe_for_profile(const Options& options, const Invocation& invocation) {
  MachineProbe probe;
  if (options.device == DeviceChoice::kCpu) return probe;
  if (options.print_command && options.device == DeviceChoice::kCuda) {
    probe.usable = true;
    for (const std::string& model : models_of(options, true)) probe.ring_obstacles[model] = "";
    return probe;
  }
  Hosts hosts(invocation.start_host, options.timeout_s);
  const CardCall call{.gpu = options.gpu, .models = models_of(options, true)};
  probe = probe_of(examine_machine(hosts, call), options.gpu);
  probe.host_unfit.clear();  // nothing is timed
  probe.card_unfit.clear();
  return probe;
}

std::string profile_stem(const CaseJob& job, const CaseEngine& engine, const fs::path& folder,
                         const std::string& ending) {
  std::string name =
      fmt::format("{}-{}-d{}-n{}", fs::path(job.model).filename().string(),
                  fs::path(engine.name).filename().string(), first_depth(job), job.n_gen);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.'; }, '-');
  std::string stem = (folder / name).string();
  for (int i = 2; fs::exists(stem + ending);
       ++i)  // an engine's file of that name in another folder has taken it
    stem = fmt::format("{}-{}", (folder / name).string(), i);
  return stem;
}

void require_profile_arguments(Options& options) {
  need_ncu_for_launches(options);
  if (options.timeline) return require_timeline_arguments(options);
  options.blocks = options.blocks.value_or(1);
  if (!options.tool) bad_usage("profile: wanted --tool nsys, --tool ncu or --timeline");
  if (options.in_process) {
    bad_usage("profile: --in-process: the tool runs around the process of one engine");
  }
  if (*options.tool == ProfileTool::kNcu && *options.blocks > 1) {
    bad_usage(
        fmt::format("profile: --blocks {}: ncu replays the launch of one block", *options.blocks));
  }
}

int profile_command(const Options& options, const Invocation& invocation) {
  if (options.timeline) return timeline_command(options, invocation);
  remove_stale_snapshots();
  std::string program = find_tool(*options.tool);
  if (!options.print_command) need_tool(*options.tool, program);
  if (program.empty()) program = tool_name(*options.tool);
  const MachineProbe probe = probe_for_profile(options, invocation);
  const RunPlan plan = plan_run(options, probe);
  for (const std::string& text : plan.warnings) fmt::print(stderr, "mkbench: warning: {}\n", text);
  for (const std::string& note : plan.notes) fmt::print(stderr, "mkbench: {}\n", note);
  if (!plan.banner.empty()) fmt::print(stderr, "mkbench: *** {} ***\n", plan.banner);
  if (options.print_command) return print_commands(options, plan, program);
  const fs::path folder = fs::absolute(make_output_folder(options.out));
  nlohmann::json all = {{"meta", describe_run(options, invocation.argv, options.out)},
                        {"tool", tool_name(*options.tool)},
                        {"profiles", nlohmann::json::array()}};
  int status = 0;
  for (CaseJob job : plan.jobs) {
    job.watched = job.one_at_a_time = true;
    job.spin_scale = kSpinScale;
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      Profiled one{.job = job,
                   .engine = engine.asked,
                   .run = nsight_run(options, program, job, engine, folder)};
      if (!options.quiet)
        fmt::print(stderr, "mkbench: {} runs around the process of {}\n", tool_name(*options.tool),
                   engine.asked);
      run_under_tool(options, engine, one);
      if (one.problem.empty() && one.run.tool == ProfileTool::kNcu)
        read_figures(probe.pin_gb_per_s, one);
      print_profiled(one, options.token_ranges);
      all["profiles"].push_back(json_of(one));
      if (status == 0) status = one.exit_code;
    }
  }
  all["exit_code"] = status;
  write_text(folder / "profile.json", dump_readable(all) + "\n");
  return status;
}

}  // namespace mkbench
