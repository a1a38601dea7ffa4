// Runs other programs of this machine, returns their output, and finds their files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace mkbench {

struct ProgramOutput {
  std::string
      text;      // its stdout, also of one that was ended; stderr is dropped, and stdin is empty
  int end = -1;  // how it ended, as waitpid() gives it; -1 where no process could be made
  bool ended = false;  // by a limit, with every process that it started
};

struct OutputLimits {
  double seconds = 0;            // 0: as long as it takes
  std::function<bool()> stop{};  // asked ten times a second; true ends the program
};

// Runs command[0], a path or a name on PATH, with the other words as arguments, and waits for its
// end or a limit. If the program cannot be run, the exit status is that of a shell: 126 or 127.
// With a limit it has a process group of its own.
ProgramOutput program_output(const std::vector<std::string>& command,
                             const OutputLimits& limits = {});

// The words as a shell takes them, quoted where that is needed.
std::string shell_text(const std::vector<std::string>& command);

// The folders of PATH, in its order; empty names are passed over.
std::vector<std::filesystem::path> path_folders();

// The first executable file of this name in the folders; empty without one.
std::string find_in(const std::vector<std::filesystem::path>& folders, const std::string& name);

}  // namespace mkbench
