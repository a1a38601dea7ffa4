// Runs other programs of this machine, returns their output, and finds their files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace mkbench {

struct ProgramOutput {
  std::string text;    // its stdout, even if a limit ended it; stderr is dropped
  int end = -1;        // how it ended, as waitpid() gives it; -1 if it did not start
  bool ended = false;  // killed with its group, at a limit or while still running after its output
};

struct OutputLimits {
  double seconds = 0;            // 0: no limit
  std::function<bool()> stop{};  // asked ten times a second; true ends the program
};

// Runs command[0], a path or a name on PATH, with the other words as arguments, and waits for its
// end or a limit. Its stdin is empty. If the program cannot be run, the exit status is a shell's:
// 126 or 127. With a limit, the program gets a process group of its own.
ProgramOutput program_output(const std::vector<std::string>& command,
                             const OutputLimits& limits = {});

// The words as one command line for a shell, quoted where necessary.
std::string shell_text(const std::vector<std::string>& command);

// The folders of PATH, in its order, without empty names.
std::vector<std::filesystem::path> path_folders();

// The first executable file of this name in the folders; empty if there is none.
std::string find_in(const std::vector<std::filesystem::path>& folders, const std::string& name);

}  // namespace mkbench
