// The parent process: parse, then one command. It never touches CUDA or libtorch; workers do.
#pragma once

#include <string>
#include <vector>

#include "harness/parent/launch.h"

namespace mkbench {

// `argv` with the program's name. `do_job` serves --in-process. Returns the exit code; what is
// thrown on the way is printed as one line.
int parent_main(const std::vector<std::string>& argv, DoJob do_job);

}  // namespace mkbench
