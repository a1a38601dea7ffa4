#include "harness/cli/plan_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "harness/engines/plugin_file.h"
#include "harness/flow/late_ids.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// Refuses words that are not in `known`; the message lists the known words and then `also`.
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
  std::vector<std::string> words = parse_path_list("engine", text);
  for (std::string& word : words)
    if (is_file_engine(word)) word = engine_name(word);
  std::vector<std::string> named;
  std::copy_if(words.begin(), words.end(), std::back_inserter(named),
               [](const std::string& word) { return !is_file_engine(word); });
  check_words("engine", named, known, ", a path that ends in .so or .py");
  return words;
}

std::vector<std::string> parse_baselines(std::string_view flag, const std::string& text) {
  std::vector<std::string> known = engine_names(kYardstick);
  known.emplace_back(kNoBaseline);
  const std::vector<std::string> words = parse_word_list(flag, text);
  check_words(flag, words, known);
  if (words.size() > 1 && std::find(words.begin(), words.end(), kNoBaseline) != words.end()) {
    bad_usage(fmt::format("--{}: '{}' excludes other names", flag, kNoBaseline));
  }
  return words;
}

void check_plan_settings(PlanSettings& settings) {
  const int processes = settings.processes.value_or(1);
  if (settings.in_process && processes > 1)
    bad_usage(fmt::format("--in-process is one process, --processes is {}", processes));
  const int blocks = settings.blocks.value_or(std::max(kDefaultBlocks, processes));
  if (processes > blocks)
    bad_usage(fmt::format("--blocks {} is below --processes {}", blocks, processes));
  if (settings.max_blocks < blocks) {
    if (was_given(settings, "max-blocks"))
      bad_usage(fmt::format("--max-blocks {} is below --blocks {}", settings.max_blocks, blocks));
    settings.max_blocks = blocks;
  }
  for (const auto* names : {&settings.engines, &settings.compare}) {
    for (const std::string& name : *names) {
      if (settings.in_process && host_kind(name) == HostKind::kPython)
        bad_usage(fmt::format(
            "--in-process: {} is an engine in Python and has a process of its own", name));
    }
  }
  if (!settings.ids.empty() && was_given(settings, "n-depth")) {
    bad_usage("--ids and --n-depth exclude each other: the depth is the number of ids less one");
  }
  if (!settings.ids.empty() && was_given(settings, "n-prompt"))
    bad_usage("--ids and --n-prompt exclude each other");
  // Every JSON reader keeps integers of 53 bits exactly.
  settings.prompt_seed =
      was_given(settings, "seed") ? settings.seed : random_below(uint64_t{1} << 53);
  settings.salt = 1 + random_below(kSaltBound - 1);  // whatever --seed is: nobody shall foresee it
}

}  // namespace mkbench
