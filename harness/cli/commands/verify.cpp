#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "harness/archive/recompute.h"
#include "harness/report/junit.h"
#include "harness/report/print_stderr.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30;

// Compares a text file with what the report renders to, line by line, up to the first difference. A
// missing file is only listed in `missing`, because a report may be copied without it.
void same_text(const fs::path& file, const std::string& wanted, std::vector<std::string>& missing,
               Differences& differences) {
  const std::string name = file.filename().string();
  if (!fs::exists(file)) return missing.push_back(name);
  const std::string found = read_small_file(file, kMostBytes);
  if (found == wanted) return differences.count(1);
  std::istringstream found_lines(found), wanted_lines(wanted);
  std::string found_line, wanted_line;
  for (int line = 1;; ++line) {
    const bool more = static_cast<bool>(std::getline(found_lines, found_line));
    const bool more_wanted = static_cast<bool>(std::getline(wanted_lines, wanted_line));
    if (more && more_wanted && found_line == wanted_line) continue;
    differences.holds(false, fmt::format("{} line {}", name, line), more ? found_line : "nothing",
                      more_wanted ? fmt::format("\"{}\"", wanted_line) : "the file's end");
    return;
  }
}

void same_failed_steps(const Report& report, const fs::path& folder,
                       std::vector<std::string>& missing, Differences& differences) {
  for_each_failed_step(report, folder, [&](const FailedStep& step, const fs::path& file) {
    const std::string name = fmt::format("failures/{}", file.filename().string());
    if (!fs::exists(file)) return missing.push_back(name);
    differences.count(1);
    differences.same(name, read_json_strict(file), json_fields::write(step));
  });
}

// Verifies one report and returns the exit code.
int verify_report(const CommandSettings& settings, const fs::path& file) {
  Differences differences;
  std::vector<std::string> missing;
  const Report report = read_and_recompute(file, differences);
  const fs::path folder = file.parent_path();
  if (report.schema_minor == kReportSchemaMinor) {
    same_text(folder / "report.md", render_markdown(report), missing, differences);
    same_text(folder / "junit.xml", render_junit(report), missing, differences);
  } else if (!settings.quiet) {
    fmt::print(
        stderr, "mkbench: {} is of schema {}.{}: report.md and junit.xml are not compared{}{}\n",
        file.string(), kReportSchemaMajor, report.schema_minor,
        differences.left_out().empty() ? "" : ", nor figures whose rules have changed since: ",
        fmt::join(differences.left_out(), ", "));
  }
  same_failed_steps(report, folder, missing, differences);
  if (!missing.empty() && !settings.quiet) {
    print_stderr("mkbench: not beside {}, and not compared: {}\n", file.string(),
                 fmt::join(missing, ", "));
  }
  int64_t samples = 0;
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) samples += std::ssize(e.samples);
  }
  for (const Difference& one : differences.all())
    fmt::print("{}: found {}, recomputed {}\n", one.path, one.found, one.recomputed);
  if (differences.all().empty()) {
    fmt::print("{}: {} figures recomputed from {} samples, all equal\n", file.string(),
               differences.figures(), samples);
    return 0;
  }
  fmt::print("{}: {} of {} figures differ\n", file.string(), differences.all().size(),
             differences.figures());
  return exit_code(Verdict::kIntegrity);
}

void require_verify_arguments(CommandSettings& settings) {
  if (settings.arguments.empty())
    bad_usage("verify: found no report, wanted some: report.json or its folder");
}

int verify_command(const CommandSettings& settings, const Invocation&) {
  int worst = 0;
  for (const std::string& argument : settings.arguments)
    worst = std::max(worst, verify_report(settings, report_file(argument)));
  return worst;
}

}  // namespace

CommandRow verify_row() {
  return command_row<CommandSettings>("verify", "compute reports again from their samples",
                                      "REPORT...", {}, require_verify_arguments, verify_command);
}

}  // namespace mkbench
