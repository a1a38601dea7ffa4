// Two reports of one machine: is an engine of the later one, HEAD, slower than in the earlier one,
// BASE? What `mkbench gate` and `run --baseline` answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/archive/clock_file.h"
#include "harness/report/junit.h"
#include "harness/report/report.h"

namespace mkbench {

// What a gate may be told.
struct GateLimits {
  std::optional<double> max_regress;  // --max-regress; absent: the margin of the calibration
  bool fails_inconclusive = false;    // --fail-on inconclusive
};

// Where a report comes from.
struct VersionSide {
  std::string report;  // its file, or the name of a baseline
  std::string git_sha, started;
  Verdict verdict = Verdict::kPass;  // of the run
};

constexpr std::string_view struct_name(Tag<VersionSide>) { return "version_side"; }
template <typename V>
void describe_fields(V& v, Tag<VersionSide>) {
  using S = VersionSide;
  v.field("report", &S::report, "its file, or the name of a baseline");
  v.field("git_sha", &S::git_sha, "commit of the mkbench that wrote it");
  v.field("started", &S::started, "when its run began");
  v.field("verdict", &S::verdict, "of its run");
}

// One engine in one case of both reports.
struct VersionRow {
  std::string case_name, engine, role;
  std::optional<double> base_ms, head_ms;  // ms/token, mean of the processes' means
  int base_processes = 0, head_processes = 0;
  Number ratio;  // HEAD's time over BASE's: TimeRatio
  std::optional<Interval> ci;
  // The ratio and interval of its time over the control's, by process. The control is an engine that a
  // change of the machine hits alike: the ceiling, on a CPU the first baseline. Empty: there is none.
  std::string control;
  Number relative;
  std::optional<Interval> relative_ci;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
};

constexpr std::string_view struct_name(Tag<VersionRow>) { return "version_row"; }
template <typename V>
void describe_fields(V& v, Tag<VersionRow>) {
  using R = VersionRow;
  v.field("case", &R::case_name, "model and axes");
  v.field("engine", &R::engine, "as asked for");
  v.field("role", &R::role, "baseline or candidate; a baseline's time decides nothing");
  v.field("base_ms_per_tok", &R::base_ms, "mean of the processes' means; null where withheld");
  v.field("head_ms_per_tok", &R::head_ms, "mean of the processes' means; null where withheld");
  v.field("base_processes", &R::base_processes, "processes that the samples were taken in");
  v.field("head_processes", &R::head_processes, "processes that the samples were taken in");
  v.field("ratio", &R::ratio, "HEAD's time over BASE's, of geometric means of the process means");
  v.field("ci", &R::ci, "Welch's t interval on logarithms of the process means");
  v.field("control", &R::control, "engine that tells a change of the machine; empty: none");
  v.field("relative", &R::relative, "as ratio, of its time over the control's in each process");
  v.field("relative_ci", &R::relative_ci, "as ci, of relative");
  v.field("verdict", &R::verdict, "PASS, REGRESSION, INCONCLUSIVE; HEAD's own where it failed");
  v.field("reason", &R::reason, "what led to it");
}

inline constexpr char kGateSchemaId[] = "mkbench.gate";
inline constexpr char kGateSchemaVersion[] = "1.0.0";

struct VersionGate {
  VersionSide base, head;
  ClockMachine machine;
  double confidence = 0.95;
  double margin = 0;  // of the calibration; the larger one of both reports
  std::string margin_source;
  int least_processes = 0;  // SpeedMargin's, of each side; rows say too_few
  std::string too_few;
  double allowed = 0;  // --max-regress, else the margin
  bool fails_inconclusive = false;
  std::vector<VersionRow> rows;
  Verdict verdict = Verdict::kPass;
  int exit_code = 0;  // 0 for INCONCLUSIVE where it is not asked to fail
  std::vector<std::string> reasons;
};

template <typename V>
void describe_fields(V& v, Tag<VersionGate>) {
  using G = VersionGate;
  v.field("base", &G::base, "the earlier report");
  v.field("head", &G::head, "the later report");
  v.field("machine", &G::machine, "of both");
  v.field("confidence", &G::confidence, "of the intervals");
  v.field("margin", &G::margin, "smallest difference that the clock's calibration supports");
  v.field("margin_source", &G::margin_source, "where the margin comes from");
  v.field("allowed", &G::allowed, "REGRESSION where a whole interval lies above 1 + this");
  v.field("fails_inconclusive", &G::fails_inconclusive, "whether INCONCLUSIVE is exit code 5");
  v.field("rows", &G::rows, "every engine of every case");
  v.group("verdict", "of all rows", [](auto& g) {
    g.field("status", &G::verdict, "the worst of them");
    g.field("exit_code", &G::exit_code, "of the program");
    g.field("reasons", &G::reasons, "what led to it");
  });
}

// A red build takes more evidence than a green one: many rows are looked at in each of many builds.
inline constexpr double kRegressionConfidence = 0.999;

// Ratios of HEAD to BASE at a report's confidence and at kRegressionConfidence.
struct RatioIntervals {
  TimeRatio usual, strict;
};
RatioIntervals ratio_intervals(const ByProcess& base, const ByProcess& head, double confidence);

// Of an engine's times over those of the control in the same processes.
struct RelativeRatio : RatioIntervals {
  bool machine_faster = false;  // the usual interval of the control's own ratio lies below 1
};

// PASS where the usual interval lies at or below 1 + allowed, REGRESSION where all of the strict one
// lies above, else INCONCLUSIVE, as without intervals. The machine may have changed, and it is
// INCONCLUSIVE too, where not all of the relative ratio's usual interval lies above and the other says
// REGRESSION; where all of its strict one does and the other does not say so; and where the machine
// became faster, if the relative ratio alone does not pass. The control only has to tell a change of
// the machine, and scatters itself, so it takes no strict interval to agree. `relative`: null without
// a control.
Verdict regression_verdict(const RatioIntervals& ratio, const RelativeRatio* relative,
                           double allowed);

// Why two reports cannot be compared, each with the field and what both hold; empty where they can.
// `machine_differences` looks at device, driver and calibration alone, which a run knows before it
// measures; `version_differences` at everything.
std::vector<std::string> machine_differences(const Report& base, const Report& head);
std::vector<std::string> version_differences(const Report& base, const Report& head);

// Throws Error(kBadInput) with `differences` on one line; returns where there are none.
void refuse_differences(const std::string& base, const std::string& head,
                        const std::vector<std::string>& differences);

// The margin of comparisons of the two: half-widths depend on the number of processes too, so those of
// both may differ, and the larger one counts; so does the larger number of least processes.
SpeedMargin version_margin(const Report& base, const Report& head);

// The gate's limit for two reports with such margins. Throws Error(kBadInput) for a max_regress
// below the margin.
double allowed_regress(const GateLimits& limits, const SpeedMargin& margin);

// Compares every engine of the reports, which the caller has read and recomputed; `base_name` and
// `head_name` are what the result and messages call them. Throws Error(kBadInput) as the two above.
VersionGate gate_versions(const Report& base, const std::string& base_name, const Report& head,
                          const std::string& head_name, const GateLimits& limits);

// A table with a row for each engine of each case, and what led to the verdict.
std::string render_gate(const VersionGate& gate);
nlohmann::json gate_json(const VersionGate& gate);
// A suite for each case with a test case for each engine. An INCONCLUSIVE that does not fail, and an
// engine whose time decides nothing, are skipped.
std::vector<JunitSuite> gate_suites(const VersionGate& gate);

}  // namespace mkbench
