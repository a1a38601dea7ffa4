#include "harness/settings/values.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>

#include "references/base/error.h"

namespace mkbench {

void bad_usage(const std::string& message) { throw Error(ErrorKind::kBadInput, message); }

bool parse_switch(std::string_view flag, const std::string& text) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  bad_usage(fmt::format("--{}: '{}' is neither on nor off", flag, text));
}

std::vector<std::string> parse_word_list(std::string_view flag, const std::string& text) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) bad_usage(fmt::format("--{}: '{}' has an empty item", flag, text));
    const std::string word = text.substr(begin, end - begin);
    words.push_back(word);
    begin = end + 1;
  }
  return words;
}

std::vector<std::string> parse_path_list(std::string_view flag, const std::string& text) {
  constexpr size_t kNone = std::string::npos;
  std::vector<std::string> words;
  for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    std::error_code error;
    for (end = text.size(); end != kNone && end > begin; end = text.rfind(',', end - 1))
      if (std::filesystem::exists(text.substr(begin, end - begin), error)) break;
    if (end == kNone || end <= begin) end = std::min(text.find(',', begin), text.size());
    if (end == begin) bad_usage(fmt::format("--{}: '{}' has an empty item", flag, text));
    words.push_back(text.substr(begin, end - begin));
  }
  return words;
}

namespace {

// One item of a list: a number, "first-last*factor" or "first-last+step".
void append_range(std::string_view flag, const std::string& item, int minimum,
                  std::vector<int>& values) {
  const size_t dash = item.find('-', 1);
  if (dash == std::string::npos) {
    values.push_back(at_least(minimum)(flag, item));
    return;
  }
  const size_t sign = item.find_first_of("*+", dash);
  if (sign == std::string::npos) {
    bad_usage(
        fmt::format("--{}: range '{}' needs a step, as in 0-4096*2 or 128-1024+128", flag, item));
  }
  const std::string_view view(item);
  const int first = at_least(minimum)(flag, view.substr(0, dash));
  const int last = at_least(minimum)(flag, view.substr(dash + 1, sign - dash - 1));
  const bool multiply = item[sign] == '*';
  const int step = at_least(multiply ? 2 : 1)(flag, view.substr(sign + 1));
  if (last < first) bad_usage(fmt::format("--{}: range '{}' ends before it starts", flag, item));
  constexpr size_t kMostValues = 4096;
  for (int64_t value = first; value <= last;) {
    values.push_back(static_cast<int>(value));
    if (values.size() > kMostValues) {
      bad_usage(fmt::format("--{}: '{}' stands for more than {} values", flag, item, kMostValues));
    }
    // Zero times a factor stays zero, so 1 follows 0: "0-4096*2" is 0, 1, 2, 4, ...
    value = !multiply ? value + step : value == 0 ? 1 : value * step;
  }
}

}  // namespace

double parse_relative(std::string_view flag, const std::string& text) {
  if (text == "off") return 0;
  return parse_number<double>(flag, text, std::numeric_limits<double>::min(), 1.0,
                              "'off' or a number in (0, 1]");
}

double parse_seconds(std::string_view flag, const std::string& text) {
  return parse_number<double>(flag, text, 0.1, 1e7, "a number of seconds of at least 0.1");
}

std::string parse_name(std::string_view flag, const std::string& text) {
  constexpr size_t kLongest = 100;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  });
  if (!plain || text.size() > kLongest || text[0] == '.')
    bad_usage(fmt::format(
        "--{}: '{}' is no name; wanted letters, digits, '.', '_' and '-', at most {} and not "
        "beginning with '.'",
        flag, text, kLongest));
  return text;
}

uint64_t parse_seed(std::string_view flag, const std::string& text) {
  return at_least<uint64_t>(0)(flag, text);
}

std::vector<int> parse_int_list(std::string_view flag, const std::string& text, int minimum) {
  std::vector<int> values;
  for (const std::string& item : parse_word_list(flag, text))
    append_range(flag, item, minimum, values);
  std::vector<int> once;
  for (const int value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  }
  return once;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace mkbench
