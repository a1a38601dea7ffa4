#include "harness/wire/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "references/base/one_line.h"

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

struct Triple {
  int64_t x = 0, y = 0, z = 0;
};
std::istream& operator>>(std::istream& in, Triple& t) {
  char open = 0, comma = 0, close = 0;
  in >> open >> t.x >> comma >> t.y >> comma >> t.z >> close;
  if (open != '(' || close != ')') in.setstate(std::ios::failbit);
  return in;
}

struct Grid {
  Triple size;
  std::string kernel;
  int ranges = 0;     // of running blocks
  int64_t first = 0;  // so many blocks from block 0 on run
};

// From what cuda-gdb prints for "info cuda kernels" and then "info cuda blocks":
//   Kernel Parent Dev Grid Status SMs Mask GridDim  BlockDim   Invocation
//   *    0      -   0    2 Active 0x00ff   (170,1,1) (128,1,1) decode(args=...)
//     BlockIdx To BlockIdx Count State
//   Kernel 0
//   * (0,0,0)  (131,0,0)     132 running
std::map<int, Grid> grids_on_card(const std::string& cuda_gdb) {
  std::map<int, Grid> grids;
  auto listed = grids.end();
  std::istringstream lines(cuda_gdb);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of("* "));
    std::istringstream kernel(line), title(line), blocks(line);
    int number = 0;
    int64_t count = 0;
    std::string word, state;
    Triple size, from, to;
    if (kernel >> number >> word >> word >> word >> word >> word >> size >> from) {
      grids[number].size = size;
      std::getline(kernel >> std::ws, grids[number].kernel, '(');
    } else if (title >> word >> number && word == "Kernel") {
      listed = grids.find(number);
    } else if (listed != grids.end() && blocks >> from >> to >> count >> state) {
      Grid& grid = listed->second;
      ++grid.ranges;
      const bool begins = from.x == 0 && from.y == 0 && from.z == 0;
      const int64_t last = (to.z * grid.size.y + to.y) * grid.size.x + to.x;
      if (begins && state == "running" && count == last + 1) grid.first = count;
    }
  }
  return grids;
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

void explain_stacks(HangReport& report) {
  const auto dump = std::find_if(report.stacks.begin(), report.stacks.end(),
                                 [](const StackDump& one) { return one.tool == "cuda-gdb"; });
  if (dump == report.stacks.end() || report.told.launch) return;
  for (const auto& [number, grid] : grids_on_card(dump->text)) {
    const int64_t all = grid.size.x * grid.size.y * grid.size.z;
    if (grid.ranges != 1 || grid.first == 0 || grid.first >= all) continue;
    report.finding.cause = HangCause::kNotResident;
    report.finding.text = fmt::format(
        "of the {} blocks{} the card holds the first {}: if these wait for the others, "
        "they wait for blocks that cannot start",
        all, grid.kernel.empty() ? "" : " of kernel '" + one_line(grid.kernel, 80) + "'",
        grid.first);
    report.line += "; " + report.finding.text;
    return;
  }
}

}  // namespace mkbench
