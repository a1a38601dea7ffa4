#include "harness/report/render_inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "harness/report/render.h"
#include "harness/report/verdict.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

constexpr size_t kShownOfAKind = 12;  // findings with the same severity and field
constexpr size_t kWidest = 100;       // bytes of a cell

// Replaces control characters, which names of files may hold, and cuts at kWidest.
std::string cell(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  if (text.size() <= kWidest) return text.empty() ? "-" : text;
  size_t end = kWidest - 2;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "..";
}

// A table of the findings for which `wanted` holds; empty if there are none.
template <typename Wanted>
std::string table_of(const Inspection& inspection, bool with_severity, Wanted wanted) {
  std::vector<std::string> headings = {"severity", "field", "expected", "found", "source"};
  if (!with_severity) headings.erase(headings.begin());
  MarkdownTable table(headings, std::vector<bool>(headings.size(), false));
  std::map<std::pair<Severity, std::string>, size_t> seen;
  bool any = false;
  for (const ModelFinding& f : inspection.findings) {
    if (!wanted(f)) continue;
    any = true;
    if (++seen[{f.severity, f.field}] > kShownOfAKind) continue;
    std::vector<std::string> cells = {enum_text(f.severity), f.field, cell(f.expected),
                                      cell(f.found), cell(f.source)};
    if (!with_severity) cells.erase(cells.begin());
    table.add(std::move(cells));
  }
  if (!any) return {};
  std::string text = table.str();
  for (const auto& [kind, count] : seen) {
    if (count > kShownOfAKind)
      text += fmt::format("\nand {} more of: {} (-o json has all)\n", count - kShownOfAKind,
                          kind.second);
  }
  return text;
}

}  // namespace

int inspection_exit_code(const Inspection& inspection) {
  return exit_code(inspection.verdict == Runs::kYes ? Verdict::kPass : Verdict::kBadInput);
}

std::string render_inspection(const Inspection& inspection) {
  std::string text = fmt::format("## {}\n\n", inspection.model);
  if (!inspection.folder.empty()) text += fmt::format("- folder: {}\n", inspection.folder);
  if (!inspection.commit.empty()) text += fmt::format("- commit: {}\n", inspection.commit);
  text += fmt::format("- dimensions of: {}\n",
                      inspection.shape.empty() ? "no published model" : inspection.shape);
  if (!inspection.folder.empty())
    text += fmt::format("- weights: {}\n", inspection.values_read
                                               ? "read"
                                               : "headers alone (--values reads every weight)");
  const std::string differences = table_of(
      inspection, true, [](const ModelFinding& f) { return f.severity != Severity::kInformation; });
  if (!differences.empty()) text += "\n### Differences\n\n" + differences;
  const std::string facts = table_of(inspection, false, [](const ModelFinding& f) {
    return f.severity == Severity::kInformation;
  });
  if (!facts.empty()) text += "\n### Found\n\n" + facts;
  return text + fmt::format("\n**{}** (exit code {})\n", inspection.verdict_text,
                            inspection_exit_code(inspection));
}

nlohmann::json to_json(const Inspection& inspection) {
  nlohmann::json all = json_fields::write(inspection);
  all["schema"] = {{"id", kInspectionSchemaId}, {"version", kInspectionSchemaVersion}};
  all["exit_code"] = inspection_exit_code(inspection);
  return all;
}

}  // namespace mkbench
