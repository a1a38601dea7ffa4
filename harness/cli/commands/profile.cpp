// `mkbench profile --tool`: runs one engine's process under Nsight, through the blocks of a run.
#include "harness/cli/commands/profile.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "harness/archive/run_folder.h"
#include "harness/cli/plan.h"
#include "harness/cli/run_settings.h"
#include "harness/device/ncu.h"
#include "harness/device/program_output.h"
#include "harness/flow/watched_blocks.h"
#include "harness/hosts/host_services.h"
#include "harness/hosts/machine.h"
#include "harness/measure/kernel_figures.h"
#include "harness/report/known_errors.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "references/snapshot_folder.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// Factor for time limits of waits inside kernels: some passes of a profiler slow a kernel manyfold.
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

NsightRun nsight_run(const ProfileSettings& settings, const std::string& program,
                     const CaseJob& job, const CaseEngine& engine, const fs::path& folder) {
  // ncu replays the launch of one block; nsys records all of them.
  const std::string range = *settings.tool == ProfileTool::kNcu
                                ? block_label(engine.name, first_depth(job), 0).message
                                : blocks_range(job, engine);
  return {*settings.tool,  program,        range, profile_stem(job, engine, folder, ".log"),
          settings.kernel, settings.launch};
}

HostCommand command_around(const NsightRun& run, const std::string& engine,
                           const ProfileSettings& settings) {
  HostCommand command = host_command(host_kind(engine), engine, settings.python);
  std::vector<std::string> words = tool_command(run);
  words.insert(words.end(), command.argv.begin(), command.argv.end());
  command.argv = std::move(words);
  command.profiler_s = settings.timeout_s;
  return command;
}

struct ToolEnd {
  int status = -1;     // as waitpid() gives it; -1: the tool did not end
  std::string said{};  // what the tool has printed
  bool began = false;  // the host under the tool has sent its first message
};

// Sets problem and exit code from how the tool ended; a nonzero exit code of the tool is kept.
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
    return;  // the host never began: its failure follows from the tool's
  one.problem =
      one.problem.empty() ? failure->what() : fmt::format("{}; {}", one.problem, failure->what());
  if (one.exit_code == 0) one.exit_code = exit_code(verdict_of(failure->kind()));
}

void run_under_tool(const ProfileSettings& settings, const CaseEngine& engine, Profiled& one) {
  std::shared_ptr<HostProcess> host;
  Hosts hosts(
      [&](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
        if (holds != engine.name)
          return std::make_shared<HostProcess>(host_command(kind, holds, settings.python));
        host = std::make_shared<HostProcess>(command_around(one.run, engine.name, settings));
        return host;
      },
      settings.timeout_s);
  std::optional<Error> failure;
  try {
    const HostServices services(one.job, hosts);
    one.told = run_watched_blocks(one.job, engine, services, settings.token_ranges);
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

// Adds the figures that ncu's report gives, and stores its table of metrics beside it as .csv.
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
  print_stderr("mkbench: error: profile: {}: {}\n", one.engine, one.problem);
  for (const std::string& advice : advice_lines({one.problem}))
    print_stderr("mkbench: {}\n", advice);
}

nlohmann::json json_of(const Profiled& one) {
  const bool there = fs::is_regular_file(report_file(one.run));
  return {{"model", one.job.model.name},
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

int print_commands(const ProfileSettings& settings, const RunPlan& plan,
                   const std::string& program) {
  for (const CaseJob& job : plan.jobs) {
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      const NsightRun run = nsight_run(settings, program, job, engine, settings.out);
      fmt::print("{}\n", shell_text(command_around(run, engine.name, settings).argv));
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

void need_ncu_for_launches(const ProfileSettings& settings) {
  if (settings.tool == ProfileTool::kNcu) return;
  for (const char* flag : {"kernel", "launch"}) {
    if (was_given(settings, flag))
      bad_usage(fmt::format(
          "profile: --{}: it chooses the launch to replay, which only --tool ncu does", flag));
  }
}

}  // namespace

MachineProbe probe_for_profile(const ProfileSettings& settings, const Invocation& invocation) {
  MachineProbe probe;
  if (settings.device == DeviceChoice::kCpu) return probe;
  if (settings.print_command && settings.device == DeviceChoice::kCuda) {
    probe.usable = true;
    for (const std::string& model : models_of(settings, true)) probe.ring_obstacles[model] = "";
    return probe;
  }
  Hosts hosts(invocation.start_host, settings.timeout_s);
  const CardCall call{.gpu = settings.gpu, .models = models_of(settings, true)};
  probe = probe_of(examine_machine(hosts, call), settings.gpu);
  probe.host_unfit.clear();  // nothing is timed
  probe.card_unfit.clear();
  return probe;
}

std::string profile_stem(const CaseJob& job, const CaseEngine& engine, const fs::path& folder,
                         const std::string& ending) {
  std::string name =
      fmt::format("{}-{}-d{}-n{}", fs::path(job.model.name).filename().string(),
                  fs::path(engine.name).filename().string(), first_depth(job), job.n_gen);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.'; }, '-');
  std::string stem = (folder / name).string();
  // An engine file of the same name from another folder may have taken the stem.
  for (int i = 2; fs::exists(stem + ending); ++i)
    stem = fmt::format("{}-{}", (folder / name).string(), i);
  return stem;
}

namespace {

std::vector<Flag<ProfileSettings>> profile_flags() {
  using P = ProfileSettings;
  return {
      flag("tool nsys|ncu",
           "nsys = where the time of all blocks goes; ncu = what limits the launch of one block.",
           &P::tool,
           one_of<ProfileTool>({{"nsys", ProfileTool::kNsys}, {"ncu", ProfileTool::kNcu}})),
      flag("timeline",
           "Instead of a tool, show what each block does inside the kernel, as the kernel itself "
           "records it.",
           &P::timeline),
      flag("engine LIST",
           "Engines, baselines too, or paths (.so, .py), profiled one after another [megakernel; "
           "host-twin on cpu].",
           &PlanSettings::engines, engines_of(kCandidate | kYardstick)),
      python_flag(),
      models_flag(),
      depth_flag(),
      flag("n-gen,n L=16", "Tokens of a block.", &PlanSettings::n_gen, list_from(1)),
      ids_flag(),
      flag("seed S=1", "Random seed for prompts. Without it, prompts differ between calls.",
           &CaseSettings::seed, parse_seed),
      flag("blocks N",
           "Blocks that nsys records; with --timeline, plain decodes to compare with recorded ones "
           "[1; 5 with --timeline].",
           &PlanSettings::blocks, at_least(1)),
      flag("warmup N=1", "Decodes before the first block, which are not recorded.",
           &PlanSettings::warmup, at_least(0)),
      flag("kernel NAME",
           "ncu: name of the kernel without arguments, or regex:EXPRESSION, for an engine that "
           "launches many [any].",
           &P::kernel),
      flag("launch N=0",
           "ncu: index of the launch to replay, among the launches of --kernel in the block.",
           &P::launch, at_least(0)),
      flag("nvtx block|token=block",
           "Mark blocks, or tokens as well, as NVTX ranges. token decodes one token a call: for "
           "engines that launch for each token.",
           &P::token_ranges, one_of<bool>({{"block", false}, {"token", true}})),
      flag("print", "Print the tool's command. Runs nothing.", &P::print_command),
      report_folder_flag(&P::out),
  };
}

void require_profile_arguments(ProfileSettings& settings) {
  need_ncu_for_launches(settings);
  check_plan_settings(settings);
  if (settings.timeline) return require_timeline_arguments(settings);
  settings.blocks = settings.blocks.value_or(1);
  if (!settings.tool) bad_usage("profile: wanted --tool nsys, --tool ncu or --timeline");
  if (settings.in_process) {
    bad_usage("profile: --in-process: the tool runs one engine in a process of its own");
  }
  if (*settings.tool == ProfileTool::kNcu && *settings.blocks > 1) {
    bad_usage(fmt::format("profile: --blocks {}: ncu replays the launch of one block only",
                          *settings.blocks));
  }
}

int profile_command(const ProfileSettings& settings, const Invocation& invocation) {
  if (settings.timeline) return timeline_command(settings, invocation);
  remove_stale_snapshots();
  std::string program = find_tool(*settings.tool);
  if (!settings.print_command) need_tool(*settings.tool, program);
  if (program.empty()) program = tool_name(*settings.tool);
  const MachineProbe probe = probe_for_profile(settings, invocation);
  const RunPlan plan = plan_run(settings, probe);
  tell_plan(plan);
  if (settings.print_command) return print_commands(settings, plan, program);
  const fs::path folder = fs::absolute(make_output_folder(settings.out));
  nlohmann::json all = {{"meta", describe_run(settings, invocation.argv, settings.out)},
                        {"tool", tool_name(*settings.tool)},
                        {"profiles", nlohmann::json::array()}};
  int status = 0;
  for (CaseJob job : plan.jobs) {
    job.watched = job.one_at_a_time = true;
    job.spin_scale = kSpinScale;
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      Profiled one{.job = job,
                   .engine = engine.asked,
                   .run = nsight_run(settings, program, job, engine, folder)};
      if (!settings.quiet)
        print_stderr("mkbench: {} runs around the process of {}\n", tool_name(*settings.tool),
                     engine.asked);
      run_under_tool(settings, engine, one);
      if (one.problem.empty() && one.run.tool == ProfileTool::kNcu)
        read_figures(probe.pin_gb_per_s, one);
      print_profiled(one, settings.token_ranges);
      all["profiles"].push_back(json_of(one));
      if (status == 0) status = one.exit_code;
    }
  }
  all["exit_code"] = status;
  write_text(folder / "profile.json", dump_readable(all) + "\n");
  return status;
}

}  // namespace

CommandRow profile_row() {
  return command_row<ProfileSettings>(
      "profile",
      "show where one engine's time goes: Nsight around it, or its kernel's own timeline", "",
      flags_of<ProfileSettings>(profile_flags(), device_flags(), card_flags(), in_process_flags()),
      require_profile_arguments, profile_command);
}

}  // namespace mkbench
