#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "harness/judge/budget.h"
#include "harness/report/print_stderr.h"

namespace mkbench {
namespace {

constexpr double kQuietBetweenLinesS = 10;

std::string bar(int done, int total) {
  constexpr int kWidth = 20;
  const int full = total > 0 ? kWidth * done / total : 0;
  return fmt::format("[{}{}] {}/{}", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(kWidth - full), '.'), done, total);
}

}  // namespace

bool locale_is_utf8(const EnvironmentLookup& lookup) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = lookup(name).value_or("");
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

ProgressDisplay::ProgressDisplay(bool quiet, bool verbose)
    : quiet_(quiet),
      verbose_(verbose),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_s_(steady_seconds()) {}

void ProgressDisplay::start_case(const std::string& name, int number, int total) {
  case_ = total > 1 ? fmt::format("case {}/{} {}", number, total, name) : name;
  last_stage_.clear();
}

void ProgressDisplay::show(const StageProgress& now) {
  if (quiet_) return;
  const std::string stage = now.stage + (now.engine.empty() ? "" : " " + now.engine);
  std::string text = case_ + (case_.empty() ? "" : ": ") + stage;
  if (terminal_) {
    if (now.total) text += " " + bar(now.done.value_or(0), *now.total);
    if (now.position) text += fmt::format(" position {}", *now.position);
    print_stderr("\r\033[K{}", text);
    std::fflush(stderr);
    bar_shown_ = true;
    return;
  }
  const double now_s = steady_seconds();
  const bool new_stage = stage != last_stage_;
  const bool due = now_s - last_line_s_ > kQuietBetweenLinesS;
  if (!(verbose_ && new_stage) && !due) return;
  if (now.total) text += fmt::format(" {}/{}", now.done.value_or(0), *now.total);
  print_stderr("mkbench: {:.0f} s: {}\n", now_s - begin_s_, text);
  last_stage_ = stage;
  last_line_s_ = now_s;
}

void ProgressDisplay::clear() {
  if (bar_shown_) print_stderr("\r\033[K");
  bar_shown_ = false;
}

}  // namespace mkbench
