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
// library. Takes up to 20 s a tool. A tool that is absent or may not attach says so in `why`.
std::vector<StackDump> take_stacks(pid_t pid);

// hang.json of a report's folder: all post-mortems of the run, written anew with each.
class HangFile {
 public:
  explicit HangFile(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Throws Error(kRuntime) where the file cannot be written.
  void add(const HangReport& report);

 private:
  const std::filesystem::path folder_;
  std::string name_;  // empty before the first
  std::vector<HangReport> reports_;
};

}  // namespace mkbench
