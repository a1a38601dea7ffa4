// The parent process parses the command line and runs one command. Only hosts touch CUDA and
// libtorch.
#pragma once

#include <string>
#include <vector>

#include "harness/parent/hosts.h"

namespace mkbench {

// `argv` includes the program's name; `start_host` starts the hosts, which are objects of this
// process where `in_process` is set. Returns the exit code; an exception is printed as one line.
int parent_main(const std::vector<std::string>& argv, const StartHost& start_host, bool in_process);

}  // namespace mkbench
