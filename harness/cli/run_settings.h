// The settings of `mkbench run`, `parity` and `compare`, and what a report says of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/archive/baselines.h"
#include "harness/archive/resume.h"
#include "harness/cli/plan_settings.h"
#include "harness/report/render.h"

namespace mkbench {

struct RunSettings : PlanSettings, BaselineSettings {
  bool history = false;  // add the finished report to the history
  bool plot = true;
  bool list_devices = false;
  bool parity_table = false;
  std::string format;
  std::string out;     // empty: mkbench-report-<time>
  std::string resume;  // folder of an interrupted run; empty: a new run
  std::string junit;   // file; empty: only junit.xml of the report's folder
  bool dry_run = false;
};

template <typename S>
Flag<S> report_folder_flag(std::string S::*field) {
  return flag("out DIR", "New folder for the report's files [mkbench-report-<time>].", field);
}

template <typename S>
Flag<S> junit_flag(std::string S::*field) {
  return flag("junit FILE", "Also write the result to this file as JUnit XML.", field);
}

inline std::vector<Flag<GateLimits>> gate_limit_flags() {
  return {flag("max-regress X",
               "gate: largest accepted slow-down of HEAD, as a share of BASE's time [the smallest "
               "that the clock's calibration can tell; 0.01 without a calibration].",
               &GateLimits::max_regress,
               [](std::string_view name, const std::string& text) {
                 return parse_number<double>(name, text, 0, 10, "a share of at least 0");
               }),
          flag("fail-on regression|inconclusive=regression",
               "gate: inconclusive = exit code 5 also where the data cannot tell whether HEAD is "
               "slower.",
               &GateLimits::fails_inconclusive,
               one_of<bool>({{"regression", false}, {"inconclusive", true}}))};
}

// Flags of run, compare and parity: what is printed and written.
inline std::vector<Flag<RunSettings>> report_flags() {
  using R = RunSettings;
  return {
      python_flag(),
      flag("parity-table", "Print the whole parity table.", &R::parity_table),
      flag("output,o md|json|jsonl|csv|sql|benchmark|openmetrics|annotations=md",
           "Format of stdout. The report's files are always written.", &R::format,
           one_word_of({kTextFormats.begin(), kTextFormats.end()})),
      report_folder_flag(&R::out),
      flag("resume DIR",
           "Continue the interrupted run in this folder with its options. Finished cases are kept.",
           &R::resume),
      junit_flag(&R::junit),
      flag("dry-run", "Print the cases, the memory they need and the estimated time. Runs nothing.",
           &R::dry_run),
      flag("plot=on",
           "Draw plots and write report.html, after parity if it failed. Needs a Python with "
           "vl-convert.",
           &R::plot),
  };
}

// Flags of run and compare that parity does not have.
inline std::vector<Flag<RunSettings>> result_flags() {
  using R = RunSettings;
  return {
      {{"parity prompt=prompt", "Parity cannot be switched off."},
       [](R&, const std::string& text) { one_word_of({"prompt"})("parity", text); }},
      flag(
          "tune",
          "First measure ring's pace on this card (mkbench tune; 0.6B: within a minute), print its "
          "row of tuning, and run ring with it.",
          &R::tune),
      flag("list-devices", "Print the devices and exit.", &R::list_devices),
      flag("baseline NAME",
           "Compare this run with the report kept under NAME, as mkbench gate does.", &R::baseline,
           parse_name),
      flag("save-baseline NAME",
           "Keep the report under NAME if the run passes (~/.local/share/mkbench/baselines).",
           &R::save_baseline, parse_name),
      flag("history",
           "Add the finished report to the history (~/.local/share/mkbench/history.sqlite).",
           &R::history),
  };
}

// Flags of run, compare and parity, listed after each one's own.
inline std::vector<Flag<RunSettings>> shared_flags() {
  return flags_of<RunSettings>(device_flags(), card_flags(), in_process_flags(), judge_flags(),
                               report_flags());
}

inline std::vector<Flag<RunSettings>> parity_command_flags() {
  return flags_of<RunSettings>(choice_flags(), only_flags(), shared_flags());
}

inline std::vector<Flag<RunSettings>> run_command_flags() {
  return flags_of<RunSettings>(choice_flags(), axis_flags(), timing_flags(), shared_flags(),
                               result_flags(), gate_limit_flags());
}

// Checks flags against each other. Throws Error(kBadInput).
void check_run_settings(RunSettings& settings);
// Sets what `mkbench parity` implies, then calls check_run_settings().
void require_parity_arguments(RunSettings& settings);

// The settings with which an interrupted run continues: an option that is not given gets its
// recorded value. Throws Error(kBadInput) if a given option differs from its recorded value.
RunSettings resumed_settings(const RunSettings& given, const Resumption& resumption);

// The `meta` of a report: argv, build, options, start time. `output`: the report's folder.
nlohmann::json describe_run(const PlanSettings& settings, const std::vector<std::string>& argv,
                            const std::string& output);

// Checks the paths that a command reads or writes, so that a typo fails before minutes of work.
// Throws Error(kBadInput).
void check_paths(const std::string& junit, const std::string& reference);

}  // namespace mkbench
