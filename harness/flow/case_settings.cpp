#include "harness/flow/case_settings.h"

#include <fmt/format.h>

#include <utility>

namespace mkbench {

std::vector<int32_t> parse_ids(std::string_view flag, const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& word : parse_word_list(flag, text)) {
    ids.push_back(
        parse_number<int32_t>(flag, word, 0, std::numeric_limits<int32_t>::max(), "a token id"));
  }
  return ids;
}

double parse_confidence(std::string_view flag, const std::string& text) {
  return parse_number<double>(flag, text, 0.5, 0.9999, "a number in [0.5, 0.9999]");
}

PlantedFault parse_fault(std::string_view flag, const std::string& text) {
  std::vector<std::pair<std::string, PlantedFault>> choices;
  for (const PlantedFaultInfo& info : planted_faults()) choices.emplace_back(info.name, info.fault);
  return parse_choice<PlantedFault>(flag, text, choices);
}

void set_only(CaseSettings& settings, const std::string& text) {
  if (text.ends_with(".json")) {
    settings.only = read_failed_step(text);
    return;
  }
  const size_t colon = text.rfind(':');
  if (colon == 0) bad_usage(fmt::format("--only: '{}' names no prompt", text));
  if (colon == std::string::npos) {
    settings.only_prompt = text;
    return;
  }
  FailedStep step;
  step.prompt = text.substr(0, colon);
  step.position = at_least(0)("only", text.substr(colon + 1));
  settings.only = step;
}

}  // namespace mkbench
