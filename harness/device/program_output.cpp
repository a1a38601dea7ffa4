#include "harness/device/program_output.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

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

std::string shell_text(const std::vector<std::string>& command) {
  constexpr std::string_view kPlain = "-_./,:=+@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  std::string text;
  for (const std::string& word : command) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), is_plain);
    text += (text.empty() ? "" : " ") + (plain ? word : quoted(word));
  }
  return text;
}

std::vector<std::filesystem::path> path_folders() {
  std::vector<std::filesystem::path> folders;
  const char* path = std::getenv("PATH");
  std::istringstream names(path != nullptr ? path : "");
  for (std::string folder; std::getline(names, folder, ':');) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

}  // namespace mkbench
