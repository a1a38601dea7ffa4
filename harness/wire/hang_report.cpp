#include "harness/wire/hang_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace mkbench {
namespace {

// ", its progress word says position 12, layer 3, phase o_proj"
std::string progress_text(const HangTold& told) {
  if (told.position < 0) return ", and it has no progress word";
  std::string text = fmt::format(", its progress word says position {}", told.position);
  if (told.layer >= 0) text += fmt::format(", layer {}", told.layer);
  if (!told.phase.empty()) text += ", phase " + told.phase;
  return text;
}

}  // namespace

void explain_hang(HangReport& report) {
  if (!report.answered) {
    report.line = fmt::format("HANG: '{}' of {} does not return, and its process does not answer",
                              report.call, report.engine);
    return;
  }
  if (report.told.launch) {
    report.finding = explain(*report.told.launch);
    report.line = "HANG: " + report.finding.text;
    return;
  }
  report.line = fmt::format("HANG: '{}' of {} {} after {} launches{}", report.call, report.engine,
                            report.killed ? "does not return" : "stood still",
                            std::max<int64_t>(report.told.launches, 0), progress_text(report.told));
}

}  // namespace mkbench
