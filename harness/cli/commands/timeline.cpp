// `mkbench profile --timeline`: what each block of an engine's kernel does, recorded by the engine.
#include "harness/flow/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "harness/archive/run_folder.h"
#include "harness/cli/commands/profile.h"
#include "harness/cli/plan.h"
#include "harness/cli/run_settings.h"
#include "harness/hosts/host_services.h"
#include "harness/report/known_errors.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "harness/report/timeline_svg.h"
#include "harness/report/timeline_trace.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/snapshot_folder.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr int kPairs = 5;  // decodes with and without recording

// One engine of one case.
struct Recorded {
  CaseJob job;
  std::string engine;
  TimelineReport report{};
  std::string problem{};  // one line; empty: the timeline is there
  int exit_code = 0;
};

std::string title_of(const Recorded& one) {
  return fmt::format("{} on {} ({})", one.engine, one.job.device, case_name(one.job));
}

constexpr char kTraceEnding[] = ".trace.json";

// Writes the trace and the picture, and fills in the report.
void keep(const RecordedDecode& decode, const std::string& stem, Recorded& one) {
  TimelineReport& report = one.report;
  report.title = title_of(one);
  report.resolved = decode.resolved;
  report.clock = decode.timeline.clock;
  report.quality = decode.timeline.quality;
  report.cost = decode.cost;
  report.summary = summarize_timeline(decode.timeline, one.job.n_gen);
  report.first_traced_step = first_traced_step(decode.timeline, one.job.n_gen);
  report.trace = fs::path(stem).filename().string() + kTraceEnding;
  std::ofstream out(stem + kTraceEnding);
  write_trace(out, decode.timeline, {report.title, report.summary.frames_us},
              report.first_traced_step);
  out.close();
  if (!out) throw Error(ErrorKind::kEnvUnfit, stem + kTraceEnding + ": it could not be written");
  const std::string picture =
      timeline_svg(decode.timeline, report.summary.whole_steps, report.title);
  if (picture.empty()) return;
  report.picture = fs::path(stem).filename().string() + ".svg";
  write_text(stem + ".svg", picture);
}

void record_one(const ProfileSettings& settings, const Invocation& invocation,
                const CaseEngine& engine, const fs::path& folder, Recorded& one) {
  try {
    Hosts hosts(invocation.start_host, settings.timeout_s);
    const HostServices services(one.job, hosts);
    const RecordedDecode decode = record_timeline(one.job, engine, services, *settings.blocks);
    keep(decode, profile_stem(one.job, engine, folder, kTraceEnding), one);
  } catch (const Error& error) {
    one.problem = error.what();
    one.exit_code = exit_code(verdict_of(error.kind()));
  }
}

void print_recorded(const Recorded& one, const fs::path& folder) {
  if (!one.problem.empty()) {
    print_stderr("mkbench: error: profile: {}: {}\n", one.engine, one.problem);
    for (const std::string& advice : advice_lines({one.problem}))
      print_stderr("mkbench: {}\n", advice);
    return;
  }
  fmt::print("{}: {}, the kernel recorded what its blocks do\n", title_of(one),
             verdict_name(Verdict::kNotJudged));
  fmt::print("  trace: {} (open it in https://ui.perfetto.dev)\n",
             (folder / one.report.trace).string());
  for (const std::string& line : headlines(one.report)) fmt::print("  {}\n", line);
  fmt::print("  {}\n", cost_line(one.report.cost));
  std::fflush(stdout);
}

nlohmann::json json_of(const Recorded& one) {
  const TimelineReport& report = one.report;
  return {{"model", one.job.model.name},
          {"device", one.job.device},
          {"engine", one.engine},
          {"resolved_name", report.resolved},
          {"n_depth", first_depth(one.job)},
          {"n_gen", one.job.n_gen},
          {"verdict", verdict_name(Verdict::kNotJudged)},
          {"problem", one.problem},
          {"trace", report.trace},
          {"picture", report.picture},
          {"first_traced_step", report.first_traced_step},
          {"clock", report.clock},
          {"clock_quality", json_fields::write(report.quality)},
          {"recording_cost", report.cost.share()},
          {"decodes", json_fields::write(report.cost)},
          {"summary", json_fields::write(report.summary)}};
}

}  // namespace

void require_timeline_arguments(ProfileSettings& settings) {
  settings.blocks = settings.blocks.value_or(kPairs);
  if (settings.tool) bad_usage("profile: --timeline: no tool runs beside it; found --tool");
  if (settings.print_command)
    bad_usage("profile: --timeline runs no tool, so there is no command to --print");
  if (settings.token_ranges)
    bad_usage("profile: --timeline: it records no NVTX ranges; found --nvtx token");
}

int timeline_command(const ProfileSettings& settings, const Invocation& invocation) {
  remove_stale_snapshots();
  const RunPlan plan = plan_run(settings, probe_for_profile(settings, invocation));
  tell_plan(plan);
  const fs::path folder = fs::absolute(make_output_folder(settings.out));
  nlohmann::json all = {{"meta", describe_run(settings, invocation.argv, settings.out)},
                        {"tool", "timeline"},
                        {"profiles", nlohmann::json::array()}};
  std::string text = "# Timelines\n\n";
  int status = 0;
  for (CaseJob job : plan.jobs) {
    job.one_at_a_time = true;
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      Recorded one{.job = job, .engine = engine.asked};
      record_one(settings, invocation, engine, folder, one);
      print_recorded(one, folder);
      all["profiles"].push_back(json_of(one));
      text += one.problem.empty() ? timeline_markdown(one.report)
                                  : fmt::format("## {}\n\n{}\n", title_of(one), one.problem);
      if (status == 0) status = one.exit_code;
    }
  }
  all["exit_code"] = status;
  write_text(folder / "profile.json", dump_readable(all) + "\n");
  write_text(folder / "report.md", text);
  return status;
}

}  // namespace mkbench
