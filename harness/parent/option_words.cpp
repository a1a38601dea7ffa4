#include "harness/parent/option_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>

#include "harness/engines/plugin_file.h"
#include "harness/parent/option_values.h"

namespace mkbench {
namespace {

// Refuses words that are not among `known`; the refusal lists the known words and then `also`.
void check_words(std::string_view flag, const std::vector<std::string>& words,
                 const std::vector<std::string>& known, std::string_view also = "") {
  for (const std::string& word : words) {
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string nearest = nearest_word(word, known);
    bad_usage(fmt::format("--{}: '{}' is unknown{}; known: {}{}", flag, word,
                          nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                          fmt::join(known, ", "), also));
  }
}

}  // namespace

std::vector<std::string> parse_engines(const std::string& text, unsigned roles) {
  std::vector<std::string> known = engine_names(kCandidate);
  for (const std::string& name : engine_names(kYardstick)) {
    const bool again = std::find(known.begin(), known.end(), name) != known.end();
    if ((roles & kYardstick) != 0 && !again) known.push_back(name);
  }
  known.insert(known.begin(), kMegakernel);
  const std::vector<std::string> words = parse_word_list("engine", text);
  std::vector<std::string> named;
  std::copy_if(words.begin(), words.end(), std::back_inserter(named),
               [](const std::string& word) { return !is_file_engine(word); });
  check_words("engine", named, known, ", a path that ends in .so or .py");
  return words;
}

std::vector<std::string> parse_baselines(const std::string& text) {
  std::vector<std::string> known = engine_names(kYardstick);
  known.emplace_back(kNoBaseline);
  const std::vector<std::string> words = parse_word_list("compare", text);
  check_words("compare", words, known);
  if (words.size() > 1 && std::find(words.begin(), words.end(), kNoBaseline) != words.end()) {
    bad_usage(fmt::format("--compare: '{}' stands alone", kNoBaseline));
  }
  return words;
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& word : parse_word_list("ids", text)) {
    ids.push_back(
        parse_number<int32_t>("ids", word, 0, std::numeric_limits<int32_t>::max(), "a token id"));
  }
  return ids;
}

double parse_relative(std::string_view flag, const std::string& text) {
  if (text == "off") return 0;
  return parse_number<double>(flag, text, std::numeric_limits<double>::min(), 1.0,
                              "'off' or a number in (0, 1]");
}

double parse_confidence(const std::string& text) {
  return parse_number<double>("confidence", text, 0.5, 0.9999, "a number in [0.5, 0.9999]");
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
    bad_usage(
        fmt::format("--{}: '{}' is no name; wanted letters, digits, '.', '_' and '-'", flag, text));
  return text;
}

int64_t parse_count(std::string_view flag, const std::string& text, int64_t least) {
  return parse_number<int64_t>(flag, text, least, std::numeric_limits<int64_t>::max(),
                               fmt::format("a whole number of at least {}", least));
}

uint64_t parse_seed(const std::string& text) {
  return parse_number<uint64_t>("seed", text, 0, std::numeric_limits<uint64_t>::max(),
                                "a whole number of at least 0");
}

void parse_only(Options& options, const std::string& text) {
  if (text.ends_with(".json")) {
    options.only = read_failed_step(text);
    return;
  }
  const size_t colon = text.rfind(':');
  if (colon == 0) bad_usage(fmt::format("--only: '{}' names no prompt", text));
  if (colon == std::string::npos) {
    options.only_prompt = text;
    return;
  }
  FailedStep step;
  step.prompt = text.substr(0, colon);
  step.position = parse_int("only", text.substr(colon + 1), 0);
  options.only = step;
}

std::vector<Requirement> parse_required(const std::string& text) {
  std::vector<Requirement> all;
  for (const std::string& word : parse_word_list("require", text)) {
    const size_t equals = word.find('=');
    Requirement one{word.substr(0, equals), equals < word.size() ? word.substr(equals + 1) : ""};
    if (std::find(std::begin(kRequirementKeys), std::end(kRequirementKeys), one.key) ==
        std::end(kRequirementKeys)) {
      bad_usage(fmt::format("--require: '{}' is unknown; known: {}", one.key,
                            fmt::join(kRequirementKeys, ", ")));
    }
    if (one.wanted.empty())
      bad_usage(fmt::format("--require: '{}' has no value; wanted {}=VALUE", word, one.key));
    if (one.key != "gpu") {
      const char* wanted = one.key == "cores" ? "a number of cores" : "a number of GB";
      one.number = parse_number<double>(fmt::format("require: {}", one.key), one.wanted,
                                        std::numeric_limits<double>::min(), 1e9, wanted);
    }
    const auto same = [&](const Requirement& r) { return r.key == one.key; };
    if (std::any_of(all.begin(), all.end(), same))
      bad_usage(fmt::format("--require: '{}' is there twice", one.key));
    all.push_back(std::move(one));
  }
  return all;
}

PlantedFault parse_fault(const std::string& text) {
  std::vector<std::pair<std::string, PlantedFault>> choices;
  for (const PlantedFaultInfo& info : planted_faults()) choices.emplace_back(info.name, info.fault);
  return parse_choice<PlantedFault>("plant-fault", text, choices);
}

}  // namespace mkbench
