#include "harness/device/program_output.h"

#include <array>
#include <cstdio>

namespace mkbench {
namespace {

// A word as the shell takes it whole.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

ProgramOutput program_output(const std::vector<std::string>& command) {
  std::string line = "exec";
  for (const std::string& word : command) line += " " + quoted(word);
  std::FILE* pipe = popen((line + " 2>/dev/null </dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  ProgramOutput output;
  std::array<char, 4096> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr)
    output.text += chunk.data();
  output.end = pclose(pipe);
  return output;
}

}  // namespace mkbench
