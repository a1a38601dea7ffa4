// What the parent finds out of a call that stands still, before the host is killed; and the file of a
// run that keeps it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/wire/hang_report.h"

namespace mkbench {

// The stacks of a process that stands still, by gdb, and by cuda-gdb where it has loaded the driver's
// library. Takes up to 20 s a tool, and ends at once after Ctrl-C. A tool that is absent or may not
// attach says so in `why`.
std::vector<StackDump> take_stacks(pid_t pid);

// A function that says the line of each post-mortem and keeps them in hang.json, written anew with each, because the
// run may not reach its end. `folder` is the report's, read at each call: while it is empty nothing is written.
OnHang keep_hangs(const std::filesystem::path& folder, std::function<void(const std::string&)> say);

}  // namespace mkbench
