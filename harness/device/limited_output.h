// What a child process writes to its stdout, where the child may never end by itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mkbench {

struct OutputLimits {
  double seconds = 10;
  std::function<bool()> stop{};  // asked ten times a second; true ends the child
};

struct LimitedOutput {
  std::string text;    // also what a child wrote that was ended
  bool ended = false;  // by a limit, with every process that it has started
};

// Runs `run` in a child process, in a process group of its own; stdin is empty, stderr is dropped.
LimitedOutput output_of_child(const std::function<void()>& run, const OutputLimits& limits);

// Runs command[0], a path or a name on PATH, with the words behind it. The text is empty where that
// program cannot be run.
LimitedOutput limited_output(const std::vector<std::string>& command, const OutputLimits& limits);

}  // namespace mkbench
