// Other processes as /proc shows them: found below their ancestor, stopped and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mkbench {

struct ProcessSeen {
  pid_t pid = 0, group = 0, session = 0;
  char state = 0;       // as in /proc/PID/stat: 'R', 'S', 'T' (stopped), 'Z' (ended), ..
  double cpu_s = 0;     // that it and those of its children that were waited for have taken
  std::string command;  // its command line, at most 80 characters
};

// pid 0 if there is no such process.
ProcessSeen process_of(pid_t pid);

// The children of the process `parent`, as the kernel lists them.
std::vector<pid_t> child_processes(pid_t parent);

// All processes below `ancestor`, whatever group or session they are in.
std::vector<ProcessSeen> processes_below(pid_t ancestor);

// Stops all processes below `ancestor`, which must be stopped itself. Looks again until nothing
// that a process has started meanwhile still runs, for at most a second. Returns them.
std::vector<ProcessSeen> stop_below(pid_t ancestor);

// Sends `signal` to the children of this process that are not to be spared, until none is left or
// the time is over; 0: waits for their end. A process whose parent ends becomes a child of its
// nearest ancestor that is a subreaper (PR_SET_CHILD_SUBREAPER), as mkbench is.
void end_children(const std::function<bool(const ProcessSeen&)>& spare,
                  std::chrono::duration<double> longest, int signal = SIGKILL);

// fork() for a child that end_orphans() spares until it is forgotten.
pid_t fork_known();
void forget_known(pid_t pid);
// end_children() for what hosts that have ended leave to this process. Also spares the children
// that this process had before the first fork_known(), and those in its own group.
void end_orphans(std::chrono::duration<double> longest, int signal = SIGKILL);

// How many processes the kernel has killed for lack of memory: in this container if /sys/fs/cgroup
// is the container's own control group, else on the machine; 0 if unknown.
int64_t oom_kills();

}  // namespace mkbench
