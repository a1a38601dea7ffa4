#include "harness/device/program_output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>

namespace mkbench {

std::string shell_quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

ProgramOutput program_output(const std::vector<std::string>& command) {
  std::string line = "exec";
  for (const std::string& word : command) line += " " + shell_quoted(word);
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
    text += (text.empty() ? "" : " ") + (plain ? word : shell_quoted(word));
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

std::string find_in(const std::vector<std::filesystem::path>& folders, const std::string& name) {
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path file = folder / name;
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0)
      return file.string();
  }
  return "";
}

}  // namespace mkbench
