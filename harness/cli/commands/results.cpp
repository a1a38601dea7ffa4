#include "harness/cli/commands/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "harness/cli/progress.h"
#include "harness/report/junit.h"
#include "harness/report/known_errors.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

bool asks_for_tables(const RunSettings& settings) {
  return settings.parity_table || settings.only || !settings.only_prompt.empty();
}

}  // namespace

bool prints_whole(const RunSettings& settings) {
  return settings.format != "md" || settings.verbose || settings.whole_parity ||
         asks_for_tables(settings);
}

std::vector<std::string> last_lines(const Report& report, bool told) {
  std::vector<std::string> lines = advice_lines(report.reasons);
  std::string why = first_lead(report);
  if (why.empty() && !told && !report.reasons.empty()) why = report.reasons.front();
  lines.push_back(fmt::format("{} (exit code {}){}", verdict_name(report.verdict), report.exit_code,
                              why.empty() ? "" : ": " + why));
  return lines;
}

std::string print_results(const Report& report, const RunSettings& settings, bool whole,
                          double seconds, const std::string& page) {
  const RenderStyle style{
      .utf8 = locale_is_utf8(process_environment()),
      .whole_tables = asks_for_tables(settings),
      .tells_fallback = !(isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) != 0)};
  try {
    fmt::print("{}", whole ? render(report, settings.format, style)
                           : render_summary(report, seconds, page, style));
  } catch (const std::system_error& error) {
    return error.code().message();
  }
  return std::fflush(stdout) != 0 || std::ferror(stdout) != 0 ? std::strerror(errno) : "";
}

std::string loss_text(const std::string& unread, const std::string& unwritten,
                      const RunSettings& settings, const std::filesystem::path& folder) {
  if (unread.empty() && unwritten.empty()) return "";
  if (unwritten.empty()) {
    return fmt::format(
        "cannot write the results to standard output: {}; the report is in "
        "{}",
        unread, folder.string());
  }
  // A comparison of builds is not resumed.
  const bool goes_on = settings.builds.empty() && std::filesystem::exists(folder / "report.json");
  const std::string cure = goes_on ? fmt::format("; once that is mended: mkbench {} --resume {}",
                                                 settings.command, folder.string())
                                   : "";
  if (unread.empty()) {
    return fmt::format("{}; the files in {} are not complete, the results are on standard output{}",
                       unwritten, folder.string(), cure);
  }
  return fmt::format(
      "cannot write the results to standard output: {}; the report is not written either: {}{}; "
      "the results follow",
      unread, unwritten, cure);
}

int write_junit(const Report& report, const std::string& path) {
  try {
    if (!path.empty()) write_text(path, render_junit(report));
    return report.exit_code;
  } catch (const Error& error) {
    print_stderr("mkbench: error: --junit: {}\n", error.what());
    return report.exit_code != 0 ? report.exit_code : exit_code(verdict_of(error.kind()));
  }
}

}  // namespace mkbench
