#include "harness/wire/hang_report.h"

#include <fmt/format.h>

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

// " after 3 launches", " in decode() call 4", and where the progress word stands; empty if no engine is
// in a call.
std::string told_text(const HangReport& report) {
  const HangTold& told = report.told;
  std::string text;
  if (told.launches >= 0) {
    text = fmt::format(" after {} launches", told.launches);
  } else if (told.decodes >= 0) {
    text = report.call == "decode" ? fmt::format(" in decode() call {}", told.decodes + 1)
                                   : fmt::format(" after {} decode() calls", told.decodes);
  } else {
    return text;
  }
  return text + progress_text(told);
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
  report.line = fmt::format("HANG: '{}' of {} {}{}", report.call, report.engine,
                            report.killed ? "does not return" : "stood still", told_text(report));
}

}  // namespace mkbench
