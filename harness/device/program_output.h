// What another program of this machine says when it is asked.
#pragma once

#include <string>
#include <vector>

namespace mkbench {

struct ProgramOutput {
  std::string text;  // its stdout; stderr is dropped, and stdin is empty
  int end = -1;      // how it ended, as waitpid() gives it; -1 where no process could be made
};

// Runs command[0], a path or a name on PATH, with the words behind it, and waits for its end. Where
// that program cannot be run, the exit status is the shell's: 126 or 127.
ProgramOutput program_output(const std::vector<std::string>& command);

}  // namespace mkbench
