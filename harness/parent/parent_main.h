// The parent process parses the command line and runs one command. Only hosts touch CUDA and
// libtorch.
#pragma once

#include <string>
#include <vector>

#include "harness/parent/launch.h"

namespace mkbench {

// `argv` includes the program's name. `do_job` does the jobs of --in-process. Returns the exit
// code; an exception is printed as one line.
int parent_main(const std::vector<std::string>& argv, DoJob do_job);

}  // namespace mkbench
