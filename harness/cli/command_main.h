// The parent process parses the command line and runs one command. Only hosts touch CUDA and
// libtorch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/hosts/hosts.h"

namespace mkbench {

// Returns the function that starts hosts; `python` is --python.
using StartHosts = std::function<StartHost(const std::string& python)>;

// `argv` includes the program's name. `in_process`: hosts are objects of this process. Returns the
// exit code; an exception is printed as one line.
int command_main(const std::vector<std::string>& argv, const StartHosts& start_hosts,
                 bool in_process);

}  // namespace mkbench
