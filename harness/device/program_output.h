// Other programs of this machine: what one says when it is asked, and where they lie.
#pragma once

#include <filesystem>
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

// A word in single quotes, as bash, zsh and sh take it whole.
std::string shell_quoted(const std::string& word);
// The words as a shell takes them, quoted where that is needed.
std::string shell_text(const std::vector<std::string>& command);

// The folders of PATH, in its order; empty names are passed over.
std::vector<std::filesystem::path> path_folders();

// The first executable file of this name in the folders; empty without one.
std::string find_in(const std::vector<std::filesystem::path>& folders, const std::string& name);

}  // namespace mkbench
