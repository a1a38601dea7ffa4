// Other processes as /proc shows them: found below their ancestor, stopped and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace mkbench {

struct ProcessSeen {
  pid_t pid = 0, group = 0, session = 0;
  char state = 0;       // as in /proc/PID/stat: 'R', 'S', 'T' (stopped), 'Z' (ended), ..
  std::string command;  // its command line, at most 80 characters
};

// The children of the process `parent`, as the kernel lists them.
std::vector<pid_t> child_processes(pid_t parent);

// All processes below `ancestor`, whatever group or session they are in.
std::vector<ProcessSeen> processes_below(pid_t ancestor);

// Stops all processes below `ancestor`, which must be stopped itself. Looks again until nothing
// that a process has started meanwhile still runs, for at most a second. Returns them.
std::vector<ProcessSeen> stop_below(pid_t ancestor);

// Kills the children of this process that are not to be spared, until none is left or the time is
// over. A process whose parent ends becomes a child of its nearest ancestor that is a subreaper
// (PR_SET_CHILD_SUBREAPER), as mkbench is.
void end_children(const std::function<bool(const ProcessSeen&)>& spare,
                  std::chrono::duration<double> longest);

}  // namespace mkbench
