// `mkbench gate` and `run --baseline`: of two reports of one machine, is an engine slower in the
// later one (HEAD) than in the earlier one (BASE)?
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/archive/clock_file.h"
#include "harness/report/junit.h"
#include "harness/report/report.h"

namespace mkbench {

// Settings of a gate.
struct GateLimits {
  std::optional<double> max_regress;  // --max-regress; absent: the margin of the calibration
  bool fails_inconclusive = false;    // --fail-on inconclusive
};

// Where a report comes from.
struct VersionSide {
  std::string report;  // its file, or the name of a baseline
  std::string git_sha, started;
  Verdict verdict = Verdict::kPass;  // the run's
};

constexpr std::string_view struct_name(Tag<VersionSide>) { return "version_side"; }
template <typename V>
void describe_fields(V& v, Tag<VersionSide>) {
  using S = VersionSide;
  v.field("report", &S::report, "its file, or the name of a baseline");
  v.field("git_sha", &S::git_sha, "commit of the mkbench that wrote it");
  v.field("started", &S::started, "when its run began");
  v.field("verdict", &S::verdict, "verdict of its run");
}

// One engine in one case of both reports.
struct VersionRow {
  std::string case_name, engine, role;
  std::optional<double> base_ms, head_ms;  // ms/token, mean of the processes' means
  int base_processes = 0, head_processes = 0;
  Number ratio;  // HEAD's time over BASE's: TimeRatio
  std::optional<Interval> ci;
  // The engine that a change of the machine slows as much as the others: the ceiling, on a CPU the
  // first baseline; empty: none.
  std::string control;
  // HEAD over BASE, after dividing each time by the control's in the same process.
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
  v.field("control", &R::control, "engine that shows changes of the machine; empty: none");
  v.field("relative", &R::relative,
          "like ratio, after dividing each time by the control's in its process");
  v.field("relative_ci", &R::relative_ci, "interval of relative, computed like ci");
  v.field("verdict", &R::verdict,
          "PASS, REGRESSION, INCONCLUSIVE, SKIPPED; HEAD's own if it failed");
  v.field("reason", &R::reason, "what led to the verdict");
}

inline constexpr char kGateSchemaId[] = "mkbench.gate";
inline constexpr char kGateSchemaVersion[] = "1.0.0";

struct VersionGate {
  VersionSide base, head;
  ClockMachine machine;
  double confidence = 0.95;
  double margin = 0;  // the calibration's; the larger one of both reports
  std::string margin_source;
  int least_processes = 0;  // needed of each side (SpeedMargin), else the reason is too_few
  std::string too_few;
  double allowed = 0;  // --max-regress, else the margin
  bool fails_inconclusive = false;
  std::vector<VersionRow> rows;
  Verdict verdict = Verdict::kPass;
  int exit_code = 0;  // 0 for INCONCLUSIVE unless fails_inconclusive
  std::vector<std::string> reasons;
};

template <typename V>
void describe_fields(V& v, Tag<VersionGate>) {
  using G = VersionGate;
  v.field("base", &G::base, "the earlier report");
  v.field("head", &G::head, "the later report");
  v.field("machine", &G::machine, "machine of both reports");
  v.field("confidence", &G::confidence, "confidence level of the intervals");
  v.field("margin", &G::margin, "smallest difference that the clock's calibration supports");
  v.field("margin_source", &G::margin_source, "where the margin comes from");
  v.field("allowed", &G::allowed, "REGRESSION if a whole interval lies above 1 + this share");
  v.field("fails_inconclusive", &G::fails_inconclusive, "whether INCONCLUSIVE is exit code 5");
  v.field("rows", &G::rows, "every engine of every case");
  v.group("verdict", "result of all rows", [](auto& g) {
    g.field("status", &G::verdict, "worst verdict of the rows");
    g.field("exit_code", &G::exit_code, "exit code of the program");
    g.field("reasons", &G::reasons, "what led to the status");
  });
}

// REGRESSION needs more evidence than PASS, because many rows are tested in each of many builds.
inline constexpr double kRegressionConfidence = 0.999;

// Ratios of HEAD to BASE at a report's confidence and at kRegressionConfidence.
struct RatioIntervals {
  TimeRatio usual, strict;
};
RatioIntervals ratio_intervals(const ByProcess& base, const ByProcess& head, double confidence);

// Intervals of an engine's times divided by the control's in the same processes.
struct RelativeRatio : RatioIntervals {
  bool machine_faster = false;  // the usual interval of the control's own ratio lies below 1
};

// REGRESSION if the whole strict interval of `ratio` lies above 1 + allowed; PASS if the usual one
// lies at or below 1 + allowed; else (or without intervals) INCONCLUSIVE. If `relative` is not
// null, a REGRESSION stands only if the whole usual interval of `relative` lies above too (the
// strict one would ask too much, as the control also scatters). A PASS becomes INCONCLUSIVE if the
// whole strict interval of `relative` lies above, or if the machine became faster and `relative`
// alone does not pass.
Verdict regression_verdict(const RatioIntervals& ratio, const RelativeRatio* relative,
                           double allowed);

// Why two reports cannot be compared: each field that differs, with both values; empty if they can.
// `machine_differences` compares only device, driver and calibration, which are known before a run
// measures; `version_differences` compares everything.
std::vector<std::string> machine_differences(const Report& base, const Report& head);
std::vector<std::string> version_differences(const Report& base, const Report& head);

// Throws Error(kBadInput) with `differences` on one line, unless there are none.
void refuse_differences(const std::string& base, const std::string& head,
                        const std::vector<std::string>& differences);

// The margin for comparing the two reports: the larger of both margins, which may differ because
// half-widths depend on the number of processes, and the larger least_processes.
SpeedMargin version_margin(const Report& base, const Report& head);

// The gate's limit: max_regress, else `margin`. Throws Error(kBadInput) for a max_regress below the
// margin.
double allowed_regress(const GateLimits& limits, const SpeedMargin& margin);

// Compares every engine of two reports that the caller has read and recomputed; result and messages
// call them `base_name` and `head_name`. Throws what refuse_differences() and allowed_regress() do.
VersionGate gate_versions(const Report& base, const std::string& base_name, const Report& head,
                          const std::string& head_name, const GateLimits& limits);

// A table with a row for each engine of each case, and what led to the verdict.
std::string render_gate(const VersionGate& gate);
nlohmann::json gate_json(const VersionGate& gate);
// Reads a gate.json. Throws Error(kBadInput) naming file, field, found and wanted.
VersionGate read_gate(const std::filesystem::path& file);
// A suite for each case with a test case for each engine. An INCONCLUSIVE that does not fail the
// gate, and an engine whose time decides nothing, count as skipped.
std::vector<JunitSuite> gate_suites(const VersionGate& gate);

}  // namespace mkbench
