#include "harness/parent/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace mkbench {
namespace {

constexpr auto kQuietBetweenLines = std::chrono::seconds(10);

std::string bar(int done, int total) {
  constexpr int kWidth = 20;
  const int full = total > 0 ? kWidth * done / total : 0;
  return fmt::format("[{}{}] {}/{}", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(kWidth - full), '.'), done, total);
}

}  // namespace

ProgressDisplay::ProgressDisplay(bool quiet, bool verbose)
    : quiet_(quiet), verbose_(verbose), terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressDisplay::start_case(const std::string& name, int number, int total) {
  case_ = total > 1 ? fmt::format("case {}/{} {}", number, total, name) : name;
  last_stage_.clear();
}

void ProgressDisplay::show(const nlohmann::json& message) {
  if (quiet_) return;
  const std::string engine = message.value("engine", "");
  const std::string stage = message.value("stage", "") + (engine.empty() ? "" : " " + engine);
  std::string text = fmt::format("{}: {}", case_, stage);
  const int done = message.value("done", 0), total = message.value("total", 0);
  if (terminal_) {
    if (total > 0) text += " " + bar(done, total);
    if (message.contains("position"))
      text += fmt::format(" position {}", message["position"].get<int>());
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    bar_shown_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool new_stage = stage != last_stage_;
  const bool due = now - last_line_ > kQuietBetweenLines;
  if (!(verbose_ && new_stage) && !due) return;
  if (total > 0) text += fmt::format(" {}/{}", done, total);
  fmt::print(stderr, "mkbench: {}\n", text);
  last_stage_ = stage;
  last_line_ = now;
}

void ProgressDisplay::clear() {
  if (bar_shown_) fmt::print(stderr, "\r\033[K");
  bar_shown_ = false;
}

}  // namespace mkbench
