// The post-mortem of a call that stood still, as hang.json holds it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/wire/calls.h"
#include "references/standstill.h"

namespace mkbench {

// The stacks of a host's threads or of the card's blocks.
struct StackDump {
  std::string tool;  // "gdb", "cuda-gdb"
  std::string text;  // as the tool printed it; empty if `why` says that it could not
  std::string why;
  static void fields(auto& v) {
    list_fields(v, "tool", &StackDump::tool, "text", &StackDump::text, "why", &StackDump::why);
  }
};

struct HangReport {
  std::string engine;     // the host's engine, as reports name it
  std::string call;       // "prefill", "decode"
  double seconds = 0;     // how long the call had been running
  bool killed = false;    // false: the engine's own limit for a wait ended the call
  std::string line;       // "HANG: block 57 waits in ..."
  HangFinding finding{};  // why it hangs, as far as the state of the launch is known
  bool answered = false;  // the host answered kAskHang; if not, `told` is empty
  HangTold told{};
  std::vector<StackDump> stacks{};
  static void fields(auto& v) {
    using H = HangReport;
    list_fields(v, "engine", &H::engine, "call", &H::call, "seconds", &H::seconds, "killed",
                &H::killed, "line", &H::line, "finding", &H::finding, "answered", &H::answered,
                "told", &H::told, "stacks", &H::stacks);
  }
};

using OnHang = std::function<void(HangReport&)>;  // may add to its line

// Fills in `finding` and `line` from `told`.
void explain_hang(HangReport& report);
// Adds to them what cuda-gdb has seen of a grid larger than the card holds at a time, if the engine
// has told nothing of its launch.
void explain_stacks(HangReport& report);

}  // namespace mkbench
