#include <fmt/format.h>

#include <algorithm>

#include "harness/archive/versions.h"
#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

std::string time_text(const std::optional<double>& ms) { return ms ? digits(*ms) : "-"; }

std::string ratio_text(const Number& ratio, const std::optional<Interval>& ci) {
  if (!ratio.value) return "-";
  return fmt::format("{:.4f}", *ratio.value) +
         (ci ? fmt::format(" [{:.4f}, {:.4f}]", ci->low, ci->high) : "");
}

std::string processes_text(const VersionRow& row) {
  return row.ratio.value ? fmt::format("{}, {}", row.base_processes, row.head_processes) : "-";
}

// The engine's name, without the folder if it is a path, which would be wider than the table.
std::string engine_text(const VersionRow& row) {
  return row.engine.substr(row.engine.rfind('/') + 1);
}

std::string side_line(const char* name, const VersionSide& side) {
  return fmt::format("- {}: {} ({}{}, {})\n", name, side.report, side.started,
                     side.git_sha.empty() ? "" : ", commit " + side.git_sha.substr(0, 12),
                     verdict_name(side.verdict));
}

}  // namespace

std::string render_gate(const VersionGate& gate) {
  MarkdownTable table({"case", "engine", "BASE ms/tok", "HEAD ms/tok",
                       fmt::format("HEAD / BASE [{:g} % CI]", 100 * gate.confidence),
                       "over the control", "processes", "verdict"},
                      {false, false, true, true, true, true, true, false});
  for (const VersionRow& row : gate.rows) {
    const std::string verdict =
        row.verdict == Verdict::kSkipped ? "-" : std::string(verdict_name(row.verdict));
    table.add({row.case_name, engine_text(row), time_text(row.base_ms), time_text(row.head_ms),
               ratio_text(row.ratio, row.ci), ratio_text(row.relative, row.relative_ci),
               processes_text(row), verdict});
  }
  std::string text =
      fmt::format("## HEAD against BASE, {}\n\n{}\n", gate.machine.device, table.str());
  text += side_line("BASE", gate.base) + side_line("HEAD", gate.head);
  text += fmt::format("- allowed: {:g} % more; the margin of the clock is {:g} % ({})\n",
                      100 * gate.allowed, 100 * gate.margin, gate.margin_source);
  for (const VersionRow& row : gate.rows) {
    if (!row.reason.empty())
      text += fmt::format("- {}, {}: {}\n", row.case_name, engine_text(row), row.reason);
  }
  return text +
         fmt::format("\n**{}** (exit code {})\n", verdict_name(gate.verdict), gate.exit_code);
}

nlohmann::json gate_json(const VersionGate& gate) {
  nlohmann::json out = json_fields::write(gate);
  out["schema"] = {{"id", kGateSchemaId}, {"version", kGateSchemaVersion}};
  return out;
}

VersionGate read_gate(const std::filesystem::path& file) {
  return json_fields::read_file_as<VersionGate>(read_json_strict(file), file.string(),
                                                kGateSchemaId, kGateSchemaVersion);
}

std::vector<JunitSuite> gate_suites(const VersionGate& gate) {
  std::vector<JunitSuite> suites;
  for (const VersionRow& row : gate.rows) {
    const std::string name = "gate / " + row.case_name;
    auto suite = std::find_if(suites.begin(), suites.end(),
                              [&](const JunitSuite& s) { return s.name == name; });
    if (suite == suites.end()) {
      suite = suites.insert(suite,
                            {.name = name,
                             .seconds = {},
                             .properties = {{"base", gate.base.report}, {"head", gate.head.report}},
                             .cases = {}});
    }
    const bool excused = row.verdict == Verdict::kInconclusive && !gate.fails_inconclusive;
    JunitCase test = junit_verdict(row.engine, row.verdict, {row.reason});
    test.file = engine_file(row.engine);
    if (excused) test.outcome = JunitOutcome::kSkipped;
    if (test.outcome == JunitOutcome::kSkipped)
      test.message = fmt::format("{}: {}", verdict_name(row.verdict), row.reason);
    suite->cases.push_back(std::move(test));
  }
  return suites;
}

}  // namespace mkbench
