// Runs a program of scripts/ in the Python that mkbench was set up with.
#pragma once

#include <string>
#include <vector>

namespace mkbench {

struct PythonScript {
  std::string name;  // a file of scripts/
  std::vector<std::string> arguments;
  std::string input = {};         // the script's standard input; empty: mkbench's
  std::string* output = nullptr;  // receives the script's stdout; null: see prints_result
  bool prints_result = false;     // true: it prints to mkbench's stdout; false: to its stderr
};

// Replaces this process by the script. Returns only if the script could not be started, with the
// reason. Only name and arguments of `script` are used.
std::string become_script(const PythonScript& script);

// Waits for the script and returns its exit code; -1, with a line in `problem`, if it could not be
// run or died by a signal. The Python is MKBENCH_PYTHON, else the build's.
int run_script(const PythonScript& script, std::string& problem);

}  // namespace mkbench
