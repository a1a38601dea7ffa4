// What the parent finds out about a call that stands still before it kills the host, and the file
// of a run that keeps it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/wire/hang_report.h"

namespace mkbench {

// The stacks of a process that stands still, by gdb, and by cuda-gdb if the process has loaded the
// driver's library. Takes up to 20 s a tool, and ends at once after Ctrl-C. StackDump::why says why
// a tool showed no stack.
std::vector<StackDump> take_stacks(pid_t pid);

// Returns a function that prints the line of each post-mortem and keeps all in hang.json, rewritten
// each time. `folder`: the report's, read at each call; while it is empty nothing is written.
OnHang keep_hangs(const std::filesystem::path& folder, std::function<void(const std::string&)> say);

}  // namespace mkbench
