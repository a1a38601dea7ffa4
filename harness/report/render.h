// Shared by the printers of a report.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/junit.h"
#include "harness/report/report.h"

namespace mkbench {

// Formats of render().
inline constexpr std::array<std::string_view, 8> kTextFormats = {
    "md", "json", "jsonl", "csv", "sql", "benchmark", "openmetrics", "annotations"};
// Reports as text: md, one below the other; json, as a list if there are several; jsonl, csv and sql,
// a row for each engine; benchmark (Google Benchmark's JSON: times of equal names are repetitions);
// openmetrics (of equal labels the last report's value); annotations (GitHub's, for what failed).
// Throws Error(kBadInput) for another format.
std::string render(std::span<const Report> reports, const std::string& format,
                   const RenderStyle& style = {});
inline std::string render(const Report& report, const std::string& format,
                          const RenderStyle& style = {}) {
  return render(std::span(&report, 1), format, style);
}

// A Markdown table whose columns are aligned as text, too. The first row holds the headings;
// `right` says which columns are aligned to the right. Widths count code points, so that token
// texts outside ASCII keep the grid.
class MarkdownTable {
 public:
  MarkdownTable(std::vector<std::string> headings, std::vector<bool> right)
      : rows_{std::move(headings)}, right_(std::move(right)) {}
  void add(std::vector<std::string> cells);  // bars inside are escaped
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<bool> right_;
};

// A string at a path of nested objects, or `fallback`.
std::string json_text(const nlohmann::json& object, const std::vector<const char*>& path,
                      const std::string& fallback = {});

// Text of unknown origin in quotes, as one line cut after max_length characters. Text with
// characters that Markdown or HTML would interpret becomes a code span, which shows them unchanged.
std::string quoted_text(const std::string& text, size_t max_length);

// "1,280"
std::string with_commas(int64_t n);
// Four significant digits without an exponent: 0.8512, 12.34, 1,234.
std::string digits(double v);
// " [0.8512, 0.8530]"; empty without an interval.
std::string interval_text(const std::optional<Interval>& ci);
// Cases that differ only in depth, or only in the length of a prefill, share a table.
using CaseGroup = std::vector<const CaseReport*>;
// True for a case of `mkbench parity`, which times nothing.
bool is_parity_case(const CaseReport& c);
// Times, speed-up, share and verdict of each engine; in prefill tests the times of the prefill, in
// parity cases the counts of checks. Engines of class lossy have their own table below the others'.
std::string engine_table(const CaseGroup& group);
// The first screen of a run that took `seconds`: machine, a row an engine, what failed, and what to
// do next. `page`: the file that has everything else.
std::string render_summary(const Report& report, double seconds, const std::string& page,
                           const RenderStyle& style = {});
// "tiny, ./engine.so: the logits are those of: ...", of the first failure that a known bug explains or
// that was found to begin in a layer; or empty.
std::string first_lead(const Report& report);
// The table of render_summary().
std::string summary_table(const Report& report);
// "24 F32 of 24 tensors are rounded to bf16, for truth, baselines and engines alike", and the loader's notes.
std::vector<std::string> weights_notes(const CaseReport& c);
// The verdict of a case other than PASS, with reasons and advice, a line each. `below_parity`: it
// stands below render_parity_line() of the engines, so reasons that were printed there are left out.
std::string verdict_note(const CaseReport& c, bool below_parity);
// The verdict of the run, "**PASS** (exit code 0, 2 cases)" and `took`; below it the reasons of a
// run without cases, and a line for each interruption.
std::string verdict_line(const Report& report, const std::string& took);
// The table of ablations (--ablations); empty if no engine has any.
std::string profile_table(const CaseGroup& group);
// Notes on the times, below a case's table: replication, every ratio with its verdict, drift,
// engines that a warm-up has not settled.
std::vector<std::string> timing_notes(const CaseReport& c);
// A line for each candidate, from the traces of launches; empty without traces. It says how long
// the card idles in an op-by-op baseline, how much time a CUDA-graph baseline saves (the fastest
// one that is not faster than the candidate), and what the rest is.
std::vector<std::string> ledger_notes(const CaseReport& c);

// "97.1 %", or "-".
std::string percent_text(const Number& share);
// The share of the ceiling that an engine reaches: "97.1 % [96.8, 97.4]".
std::string share_text(const EngineReport& e);
// The line of a case's ceiling: "ceiling: 0.3857 ms/tok, 3,091 GB/s (92.2 % of the pins' 3,352):
// bulk copies, ..". Empty without a ceiling.
std::string ceiling_note(const CaseReport& c);

// The engine's name as asked for, with the resolved name in brackets if it differs.
std::string engine_label(const EngineReport& e);
// Where the failure begins; empty if one bug alone is named, which says what part of the model is wrong.
std::string where_text(const ParityReport& p);
// The line of an engine that was judged: tokens, ratios, failed checks and reason; below it, where
// the failure begins.
std::string render_parity_line(const EngineReport& e);
// A table of how many checks of each engine passed, failed or did not apply.
std::string render_checks_table(const std::vector<const EngineReport*>& engines);

// The parity tables of a case, each under its title; empty if none is shown.
std::string render_parity_tables(const CaseReport& c, const RenderStyle& style);

// What the card did in a case: dropped blocks, energy, cost of reading the card. Empty on a CPU.
std::vector<std::string> card_notes(const CaseReport& c);
// A line for each time that the run was interrupted and went on; empty for most reports.
std::string resumed_lines(const Report& report);

bool is_cpu_report(const Report& report);

// One row for each engine of each case, as flat columns: csv, sql and jsonl print these.
struct FlatColumn {
  std::string name;
  bool is_number = false;
};
struct FlatRows {
  std::vector<FlatColumn> columns;
  std::vector<std::vector<nlohmann::json>> rows;
};
FlatRows flatten(std::span<const Report> reports);
// A row with its columns' names.
nlohmann::json row_object(const FlatRows& flat, size_t row);

std::string render_csv(std::span<const Report> reports);
std::string render_sql(std::span<const Report> reports);
std::string render_jsonl(std::span<const Report> reports);
// Engines without times are named in context.times_withheld.
std::string render_benchmark(std::span<const Report> reports);
// Gauges alone and no timestamps, so that a node exporter's folder of text files takes them, too.
std::string render_openmetrics(std::span<const Report> reports);
// "::error file=engine.so,title=..::.." for each verdict that is a failure or an error, ::warning for
// an INCONCLUSIVE that fails nothing.
std::string render_annotations(const std::vector<JunitSuite>& suites);

// JSON with lists of plain values on one line each: a report has thousands of token ids.
std::string dump_readable(const nlohmann::json& j);

}  // namespace mkbench
