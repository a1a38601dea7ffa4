#include "harness/report/known_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "references/base/data_root.h"

namespace mkbench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KnownError, name, error_class, message, parts, cause, command)

namespace {

const std::vector<KnownError>& table() {
  static const auto rows = nlohmann::json::parse(
#include "known_errors.inc"
                               )
                               .get<std::vector<KnownError>>();
  return rows;
}

bool equal_letters(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// True if `part` begins at the start of a word in `text`: "memoryerror" is not in OutOfMemoryError.
bool holds(std::string_view text, std::string_view part) {
  for (auto from = text.begin();; ++from) {
    from = std::search(from, text.end(), part.begin(), part.end(), equal_letters);
    if (from == text.end()) return false;
    if (from == text.begin() || std::isalnum(static_cast<unsigned char>(from[-1])) == 0)
      return true;
  }
}

// True for messages of mkbench itself (device_info.cpp) that already say what to do.
bool advises_itself(std::string_view text) {
  return holds(text, "no NVIDIA driver is loaded") || holds(text, "the driver shows no GPU");
}

}  // namespace

std::span<const KnownError> known_errors() { return table(); }

const KnownError* find_known_error(std::string_view text) {
  for (const KnownError& error : table()) {
    for (const std::string& part : error.parts) {
      if (holds(text, part)) return &error;
    }
  }
  return nullptr;
}

ErrorKind kind_of(ErrorKind kind, std::string_view text) {
  const KnownError* known = find_known_error(text);
  return known != nullptr && known->error_class == "system" ? ErrorKind::kEnvUnfit : kind;
}

std::string advice_text(const KnownError& error) {
  return fmt::format("{}: {}; try: {}", error.error_class, error.cause, advice_here(error.command));
}

std::vector<std::string> advice_lines(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  for (const std::string& text : texts) {
    const KnownError* known = find_known_error(text);
    if (known == nullptr || advises_itself(text)) continue;
    std::string line = "advice: " + advice_text(*known);
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(std::move(line));
  }
  return lines;
}

std::string render_known_errors() {
  // A code span that holds a backtick needs two backticks on either side.
  const auto code = [](std::string_view text) {
    return text.find('`') == std::string_view::npos ? fmt::format("`{}`", text)
                                                    : fmt::format("`` {} ``", text);
  };
  std::string text = "| message | class | cause | command |\n|---|---|---|---|\n";
  for (const KnownError& error : table()) {
    text += fmt::format("| {} | {} | {} | {} |\n", code(error.message), error.error_class,
                        error.cause, code(error.command));
  }
  return text;
}

}  // namespace mkbench
