#include "harness/cli/commands/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "harness/archive/baselines.h"
#include "harness/archive/clock_file.h"
#include "harness/archive/collector.h"
#include "harness/archive/recompute.h"
#include "harness/archive/resume.h"
#include "harness/archive/run_folder.h"
#include "harness/cli/commands/history.h"
#include "harness/cli/commands/list.h"
#include "harness/cli/commands/report.h"
#include "harness/cli/commands/results.h"
#include "harness/cli/commands/tune.h"
#include "harness/cli/outlook.h"
#include "harness/cli/plan.h"
#include "harness/cli/progress.h"
#include "harness/cli/texts.h"
#include "harness/flow/case_flow.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/replication.h"
#include "harness/hosts/fresh_repeats.h"
#include "harness/hosts/host_services.h"
#include "harness/hosts/machine.h"
#include "harness/hosts/post_mortem.h"
#include "harness/judge/budget.h"
#include "harness/judge/conclude.h"
#include "harness/judge/share.h"
#include "harness/report/print_stderr.h"
#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/snapshot_folder.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr double kPlotS = 3;  // expected for plots and page, each made by a new Python process

double in_megabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

class Run {
 public:
  // `resumption`: null for a new run.
  Run(const RunSettings& settings, const Invocation& invocation, const Resumption* resumption)
      : settings_(settings),
        resumption_(resumption),
        argv_(invocation.argv),
        start_host_(invocation.start_host),
        in_process_(invocation.in_process),
        hosts_(invocation.start_host, settings.timeout_s, on_hang_),
        outlook_(hosts_, begin_, settings.timeout_s),
        baselines_(settings, settings.builds, settings.format == "md"),
        progress_(settings.quiet, settings.verbose) {
    if (!settings.quiet) hosts_.on_wait = [this](const std::string& text) { say(text); };
  }

  int execute() {
    remove_stale_snapshots();
    probe();
    if (interrupted()) return stop_early();
    RunPlan plan = make_plan();
    if (early_exit_ >= 0) return early_exit_;
    for (const std::string& warning : plan.warnings) warn(warning);
    for (const std::string& note : plan.notes) say(note);
    if (!plan.banner.empty()) say("*** " + plan.banner + " ***");
    if (settings_.dry_run) return dry_run(plan);
    check_paths(settings_.junit, settings_.reference_dir);
    report_.environment["device"] = plan.device_text;
    if (!plan.banner.empty()) report_.environment["banner"] = plan.banner;
    if (resumption_ != nullptr) {
      resumption_->check_same(
          report_.environment, plan.jobs,
          [this](const CaseJob& job, int depth) { return hosts_.load(job.model, depth).sha256; });
    }
    if (plan.cuda && probe_.pin_gb_per_s > 0)
      report_.calibration["pin_gb_per_s"] = probe_.pin_gb_per_s;
    if (!settings_.whole_parity) take_calibration(plan);
    baselines_.check_plan(report_, options_to_json(settings_), plan.jobs);
    start_report();
    write_so_far(plan);
    if (settings_.tune) tune_jobs(plan.jobs, hosts_, settings_, report_.calibration);
    predict(plan);
    int number = 0;
    for (const CaseJob& job : plan.jobs) {
      ++number;
      if (std::optional<CaseReport> taken = take_over(job)) {
        if (std::optional<JudgedCase> memo = parity_memo(*taken))
          judged_[job.model.name] = std::move(*memo);
        report_.cases.push_back(std::move(*taken));
      } else if (interrupted()) {
        report_.cases.push_back(not_reached(job));
      } else {
        run_one_case(job, plan, number);
        write_so_far(plan);
      }
    }
    return finish();
  }

 private:
  void say(const std::string& text) {
    progress_.clear();
    print_stderr("mkbench: {}\n", text);
  }
  void warn(const std::string& text) {
    say("warning: " + text);
    warnings_.push_back(text);
  }
  bool interrupted() const { return report_.interrupted || interrupt_count() > 0; }

  void start_report() {
    folder_ =
        resumption_ != nullptr ? resumption_->output_folder() : make_output_folder(settings_.out);
    report_.meta = describe_run(settings_, argv_, folder_.string());
    if (resumption_ != nullptr) resumption_->keep_old(folder_);
  }

  // The report of a case that the interrupted run finished.
  std::optional<CaseReport> take_over(const CaseJob& job) const {
    return resumption_ != nullptr ? resumption_->take_over(job) : std::nullopt;
  }

  // Writes the report of a run that is interrupted now, so that --resume finds all finished cases
  // even if this process is killed.
  void write_so_far(const RunPlan& plan) {
    Report report = report_;
    for (size_t i = report.cases.size(); i < plan.jobs.size(); ++i) {
      std::optional<CaseReport> taken = take_over(plan.jobs[i]);
      report.cases.push_back(taken ? std::move(*taken) : not_reached(plan.jobs[i]));
    }
    try {
      end(report, true);
      write_text(folder_ / "report.json", render(report, "json"));
    } catch (const Error& error) {
      say(fmt::format("warning: --resume will not find the finished cases: {}", error.what()));
      if (report_.cases.empty()) return;
      report.cases = {report_.cases.back()};  // results of earlier cases were printed with theirs
      print_stderr("{}", render(report, "jsonl"));
    }
  }

  // Ends a run that was interrupted before the machine was probed. A new run's report has no facts
  // about GPUs and, as the cases depend on them, no cases except with --device cpu.
  int stop_early() {
    if (settings_.dry_run) return exit_code(Verdict::kInterrupted);
    if (resumption_ != nullptr) return exit_code(Verdict::kInterrupted);  // the old report remains
    std::vector<CaseJob> jobs;
    if (settings_.device == DeviceChoice::kCpu) jobs = plan_run(settings_, probe_).jobs;
    start_report();
    if (jobs.empty()) warn("interrupted before the machine was probed: the cases are not known");
    for (const CaseJob& job : jobs) report_.cases.push_back(not_reached(job));
    return finish();
  }

  void probe() {
    try {
      const CardCall call{.gpu = settings_.gpu, .models = models_of(settings_, true)};
      probe_ = probe_of(examine_machine(hosts_, call), settings_.gpu);
      report_.environment = probe_.environment;
    } catch (const Interrupted&) {
      // The caller checks for the interrupt.
    }
  }

  // A refused plan ends the run. With --out, a run that lacks its device still leaves a report.
  RunPlan make_plan() {
    try {
      return plan_run(settings_, probe_);
    } catch (const Error& error) {
      if (settings_.out.empty() || error.kind() != ErrorKind::kUnsupportedDevice) throw;
      folder_ = make_output_folder(settings_.out);
      report_.meta = describe_run(settings_, argv_, folder_.string());
      report_.environment["device"] = "none";
      report_.verdict = verdict_of(error.kind());
      report_.reasons.push_back(error.what());
      conclude(report_);
      const std::string unwritten = try_to_write_files();
      say(std::string("error: ") + error.what() + (unwritten.empty() ? "" : "; " + unwritten));
      early_exit_ = write_junit(report_, settings_.junit);
      return {};
    }
  }

  int dry_run(const RunPlan& plan) {
    fmt::print("device {}\n", plan.device_text);
    outlook_.predict(plan.jobs, !settings_.only, true);
    std::vector<Verdict> ends;
    for (const CaseOutlook& one : outlook_.cases()) {
      fmt::print("case {}\n", one.text());
      if (!one.residency.empty()) say(one.name + ": " + one.residency);
      if (!one.fits()) {
        say(fmt::format("{}: {}", one.name, one.refusal));
        ends.push_back(Verdict::kEnvUnfit);
      }
      for (const auto& [verdict, why] : one.forecast.refusals) {
        say(fmt::format("{}: {}: it would end as {}", one.name, why, verdict_name(verdict)));
        ends.push_back(verdict);
      }
    }
    if (plots_come()) outlook_.add(kPlotS);
    fmt::print(
        "{} case(s): {}; extrapolated from a few steps of each engine, measured now, to the steps "
        "of the run\n",
        plan.jobs.size(), outlook_.say());
    return ends.empty() ? 0 : exit_code(worst(ends));
  }

  // Prints the expected time and memory. A case that fails here gets its verdict when it is run.
  void predict(const RunPlan& plan) {
    if (settings_.quiet || settings_.only || !settings_.only_prompt.empty()) return;
    try {
      progress_.show({.stage = "measuring the pace", .engine = ""});
      const bool measure = settings_.fault == PlantedFault::kNone && !in_process_;
      const std::vector<CaseJob> left =
          resumption_ != nullptr ? resumption_->left_of(plan.jobs) : plan.jobs;
      if (left.empty()) return;
      outlook_.predict(left, measure, false);
    } catch (const Error&) {
      return;
    } catch (const Interrupted&) {
      return;
    }
    if (plots_come()) outlook_.add(kPlotS);
    say(fmt::format("{} case{}: {}", plan.jobs.size(), plan.jobs.size() == 1 ? "" : "s",
                    outlook_.say()));
  }

  bool plots_come() const { return settings_.plot && !settings_.whole_parity; }
  bool pictures_come() const { return settings_.plot && (plots_come() || has_errors(report_)); }

  // All cases of a report share one calibration of the clock and one of ring, so a resumed run keeps
  // those of the interrupted run.
  void take_calibration(const RunPlan& plan) {
    const nlohmann::json before =
        resumption_ != nullptr ? resumption_->before().calibration : nlohmann::json();
    if (before.is_object() && before.contains("ring_tuning"))
      report_.calibration["ring_tuning"] = before["ring_tuning"];
    if (before.is_object() && before.contains("clock")) {
      report_.calibration["clock"] = before["clock"];
      return;
    }
    const FoundClock clock = find_clock(clock_machine(report_.environment, plan.cuda));
    if (clock.damaged) warn(clock.reason);
    const int processes = plan.jobs.empty() ? 1 : process_count(plan.jobs.front());
    report_.calibration["clock"] = clock_report(clock, processes);
  }

  void sum_up(CaseReport& c) const {
    aggregate(c, settings_.confidence, settings_.seed, settings_.random_order,
              recorded_margin(report_.calibration));
  }

  void run_one_case(CaseJob job, const RunPlan& plan, int number) {
    if (const auto memo = judged_.find(job.model.name); memo != judged_.end())
      job.judged = memo->second;
    choose_residency(job);
    CaseCollector collector(job);
    progress_.start_case(case_name(job), number, static_cast<int>(plan.jobs.size()));
    EventSink sink([&](const CaseEvent& event) {
      collector.take(event);
      if (const auto* now = std::get_if<StageProgress>(&event)) progress_.show(*now);
      if (const auto* judged = std::get_if<ParityJudged>(&event)) tell_place(*judged);
      const auto* memory = std::get_if<MemoryStated>(&event);
      if (memory != nullptr && !settings_.quiet && settings_.verbose) {
        say(fmt::format("{}: {:.1f} MB needed, {:.1f} MB free ({})", case_name(job),
                        in_megabytes(memory->bytes_needed), in_megabytes(memory->bytes_free),
                        job.device));
      }
      if (const std::string again = outlook_.take(job, event); !again.empty()) say(again);
    });
    const HostServices services(job, hosts_);
    run_case(job, services, sink);
    for (const std::string& stray : hosts_.take_strays()) warn(stray);
    for (const std::string& doubt : services.cpu_doubts()) warn(case_name(job) + ": " + doubt);
    collector.finish(interrupt_count() > 0);
    report_.interrupted = report_.interrupted || collector.interrupted();
    repeat_apart(job, collector.report());
    write_tracebacks(folder_, hosts_.tracebacks(), collector.report());
    progress_.clear();
    set_memory(report_, collector.config(), collector.report());
    sum_up(collector.report());
    if (const std::string doubt = ceiling_doubt(collector.report()); !doubt.empty())
      warn(case_name(job) + ": " + doubt);
    collector.report().interrupted = interrupted();
    if (std::optional<JudgedCase> memo = parity_memo(collector.report()))
      judged_[job.model.name] = std::move(*memo);
    report_.cases.push_back(std::move(collector.report()));
  }

  void choose_residency(CaseJob& job) {
    try {
      const HostServices services(job, hosts_);
      const std::string why = mkbench::choose_residency(job, services, services.config(job.model));
      if (!why.empty()) say(case_name(job) + ": " + why);
    } catch (const std::exception&) {
      // The case meets the same error and reports it.
    } catch (const Interrupted&) {
      // The case will see the interrupt too.
    }
  }

  // The report of a case that was not reached before Ctrl-C: SKIPPED.
  CaseReport not_reached(const CaseJob& job) const {
    CaseCollector collector(job);
    collector.finish(true);
    collector.report().interrupted = true;
    sum_up(collector.report());
    return collector.report();
  }

  // Prints a failure's bug or place as soon as that is found. Whole results tell it in the end.
  void tell_place(const ParityJudged& judged) {
    if (judged.parity.localised.empty() || (settings_.format == "md" && prints_whole(settings_)))
      return;
    const std::string where = where_text(judged.parity);
    say(judged.engine + ": " + (where.empty() ? "bug: " + judged.parity.diagnosis.text : where));
    for (const std::string& fact : judged.parity.facts) say(judged.engine + ": fact: " + fact);
  }

  // Repeats the prompts in fresh processes, which must give bit-equal results for `mkbench parity`.
  void repeat_apart(const CaseJob& job, CaseReport& report) {
    if (std::none_of(report.engines.begin(), report.engines.end(), waits_for_repeats) ||
        interrupted()) {
      return;
    }
    if (in_process_) {
      warn("--in-process: no fresh processes repeat the prompts of " + case_name(job));
      return;
    }
    if (job.one_at_a_time) hosts_.end_idle("");
    repeat_in_fresh_processes(
        job, [this] { return std::make_unique<Hosts>(start_host_, settings_.timeout_s, on_hang_); },
        [this] { return interrupted(); }, report);
  }

  void end(Report& report, bool interrupted) const {
    report.interrupted = interrupted;
    report.meta["finished"] = utc_now("%Y-%m-%dT%H:%M:%SZ");
    report.meta["warnings"] = warnings_;
    report.meta["outlook"] = outlook_.json();
    if (resumption_ != nullptr) report.meta["resumed"] = resumption_->describe();
    conclude(report);
  }

  int finish() {
    for (const std::string& warning : add_token_texts(report_)) warn(warning);
    end(report_, interrupted());
    name_failed_steps(report_, folder_);
    // Results are printed before the files are written, and in full if writing fails, so that a
    // full disk does not lose them.
    const bool whole = prints_whole(settings_);
    const double seconds = steady_seconds() - begin_;
    const fs::path page = folder_ / (pictures_come() ? kPageName : "report.md");
    std::string unread = print_results(report_, settings_, whole, seconds, page);
    const std::string unwritten = try_to_write_files();
    if (!unwritten.empty() && !whole && unread.empty())
      unread = print_results(report_, settings_, true, seconds, page);
    if (unwritten.empty()) picture();
    if (!settings_.quiet && !outlook_.cases().empty()) say(outlook_.result());
    if (report_.exit_code != 0) {
      const bool told = unread.empty() && settings_.format == "md" && parity_tells_first(report_);
      for (const std::string& line : last_lines(report_, told)) say(line);
    }
    const int code = write_junit(report_, settings_.junit);
    const std::string loss = loss_text(unread, unwritten, settings_, folder_);
    if (!loss.empty()) {
      say("error: " + loss);
      if (!unread.empty() && !unwritten.empty())
        print_stderr("{}", render(report_, settings_.format));
      return code != 0 ? code : exit_code(Verdict::kRuntimeError);
    }
    const auto tell = [this](const std::string& text) { say(text); };
    const int status = baselines_.conclude(report_, folder_, code, tell);
    if (!settings_.history || report_.interrupted) return status;
    return end_in_history(report_, folder_ / "report.json", status, tell);
  }

  void picture() {
    std::error_code ignored;
    fs::remove(folder_ / kPageName, ignored);  // the interrupted run's page, if this run resumes it
    if (!pictures_come()) return;
    const bool plots = has_errors(report_) || (!report_.interrupted && has_times(report_));
    for (const std::string& warning : picture_report(folder_, plots)) say("warning: " + warning);
  }

  // Returns why a file could not be written, or an empty string.
  std::string try_to_write_files() const {
    try {
      write_failed_steps(report_, folder_);
      write_report(report_, folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const RunSettings& settings_;
  const Resumption* resumption_;
  const std::vector<std::string>& argv_;
  const StartHost start_host_;
  const bool in_process_;
  const OnHang on_hang_ = keep_hangs(folder_, [this](const std::string& text) { say(text); });
  Hosts hosts_;
  const double begin_ = steady_seconds();
  Outlook outlook_;
  const RunBaselines baselines_;
  ProgressDisplay progress_;
  MachineProbe probe_;
  int early_exit_ = -1;
  std::map<std::string, JudgedCase> judged_;  // parity findings of earlier cases, by model
  fs::path folder_;
  std::vector<std::string> warnings_;
  Report report_;
};

}  // namespace

int run_command(const RunSettings& settings, const Invocation& invocation) {
  if (settings.list_devices) return list_devices(settings, invocation);
  if (settings.resume.empty()) return Run(settings, invocation, nullptr).execute();
  const Resumption resumption(settings.resume, settings.out, settings.command);
  if (resumption.finished()) {
    fmt::print("{}: the run is finished ({}), nothing is left to do\n", settings.resume,
               verdict_name(resumption.before().verdict));
    return resumption.before().exit_code;
  }
  return Run(resumed_settings(settings, resumption), invocation, &resumption).execute();
}

CommandRow run_row() {
  return command_row<RunSettings>("run", "judge, measure and compare (the default)", "",
                                  run_command_flags(), check_run_settings, run_command);
}

CommandRow parity_row() {
  return command_row<RunSettings>("parity", "make every check of parity, and time nothing", "",
                                  parity_command_flags(), require_parity_arguments, run_command);
}

}  // namespace mkbench
