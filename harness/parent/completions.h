// Completions for shells, made of the tables of flags and commands.
#pragma once

#include <string>

namespace mkbench {

// Each is the whole file that the shell reads.
std::string bash_completions();
std::string zsh_completions();
std::string fish_completions();

}  // namespace mkbench
