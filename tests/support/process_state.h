// What other processes do, as /proc shows it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace mkbench::testing {

// The state of a process as /proc shows it; '-' where there is none.
inline char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return '-';
  return line[line.rfind(')') + 2];
}

// Waits up to two seconds until the process is in one of the states.
inline bool comes_to(pid_t pid, const std::string& states) {
  for (int i = 0; i < 200; ++i) {
    if (states.find(state_of(pid)) != std::string::npos) return true;
    usleep(10'000);
  }
  return false;
}

// Whether a process has ended; init may not have collected it yet.
inline bool is_gone(pid_t pid) { return comes_to(pid, "-ZX"); }

}  // namespace mkbench::testing
