#include "harness/parent/evidence_boxes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string_view>

#include "harness/report/known_errors.h"

namespace mkbench {
namespace {

constexpr size_t kSteps = 50;  // of the training, as scripts/torch_evidence.py makes them
constexpr size_t kEnds = 5;    // steps at either end whose mean losses are compared
// The loss must fall by a fifth at least; in fp32 it falls by half.
constexpr double kFallen = 0.8;
// Upper bound for the difference between the card's and the CPU's loss of the first step, both in
// fp32 from the same weights and ids, so that only the order of sums differs.
constexpr double kSameLoss = 0.001;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What stands behind `key: ` in the first line that begins so; empty where none does.
std::string value_of(const std::string& text, std::string_view key) {
  const std::string start = fmt::format("{}: ", key);
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "";
}

// The number that a value begins with; 0 where it begins with none.
double number_of(const std::string& value) { return std::strtod(value.c_str(), nullptr); }

struct Steps {
  std::vector<double> losses;
  bool all_on_cuda = true;  // every loss and parameter lay on one card
};

// The lines `cuda step 7: loss 4.8123 on cuda:0`, in order; a step out of order ends the list.
Steps steps_of(const std::string& log, const char* where) {
  Steps steps;
  for (const std::string& line : lines_of(log)) {
    std::istringstream words(line);
    std::string at, step, loss_word, loss, on_word, on;
    size_t index = 0;
    char colon = 0;
    words >> at >> step >> index >> colon >> loss_word >> loss >> on_word;
    std::getline(words >> std::ws, on);
    if (at != where || step != "step" || colon != ':' || loss_word != "loss" || on_word != "on")
      continue;
    if (index != steps.losses.size() + 1) break;
    steps.losses.push_back(number_of(loss));
    steps.all_on_cuda =
        steps.all_on_cuda && on.starts_with("cuda:") && on.find(' ') == std::string::npos;
  }
  return steps;
}

double mean(const double* first, size_t count) {
  return std::accumulate(first, first + count, 0.0) / static_cast<double>(count);
}

EvidenceBox training_box(const Steps& cuda) {
  const size_t count = cuda.losses.size();
  if (count < kSteps)
    return {"training on cuda", false, fmt::format("{} of {} steps in the log", count, kSteps)};
  const double before = mean(cuda.losses.data(), kEnds);
  const double after = mean(cuda.losses.data() + count - kEnds, kEnds);
  return {"training on cuda", after <= kFallen * before,
          fmt::format("{} steps; the mean loss of {} steps went from {:.3f} to {:.3f}", count,
                      kEnds, before, after)};
}

EvidenceBox same_result_box(const Steps& cuda, const Steps& cpu) {
  if (cuda.losses.empty() || cpu.losses.empty())
    return {"same result as the CPU", false, "the log has not both"};
  const size_t last = std::min(cuda.losses.size(), cpu.losses.size()) - 1;
  return {
      "same result as the CPU", std::abs(cuda.losses[0] - cpu.losses[0]) <= kSameLoss,
      fmt::format("loss of step 1: {:.4f} on the card, {:.4f} on the CPU; of step {}: {:.4f} "
                  "and {:.4f}",
                  cuda.losses[0], cpu.losses[0], last + 1, cuda.losses[last], cpu.losses[last])};
}

EvidenceBox memory_box(const EvidenceTexts& texts) {
  const std::string mib = value_of(texts.smi, "MiB of our process");
  const std::string during = value_of(texts.smi, "taken during");
  if (!during.starts_with("steps ")) return {"memory allocated", false, "no training was watched"};
  return {"memory allocated", number_of(mib) > 0,
          fmt::format("{} MiB by {}; taken during {}; torch itself counts {} MiB", mib,
                      value_of(texts.smi, "counted by"), during,
                      value_of(texts.training, "MiB that torch allocated on the card"))};
}

EvidenceBox fallback_box(const EvidenceTexts& texts, const Steps& cuda) {
  const std::vector<std::string> lines = lines_of(texts.training);
  const std::string first = lines.empty() ? "" : lines[0];
  const double needed = number_of(value_of(texts.training, "MiB that the training needs at least"));
  const double taken = number_of(value_of(texts.training, "MiB that torch allocated on the card"));
  const double gpu_rate = number_of(value_of(texts.training, "cuda steps/s"));
  const double cpu_rate = number_of(value_of(texts.training, "cpu steps/s"));
  const bool holds = first == "Using device: cuda" && !cuda.losses.empty() && cuda.all_on_cuda &&
                     needed > 0 && taken >= needed && gpu_rate > 0 && cpu_rate > 0;
  if (cuda.losses.empty()) return {"no fallback", false, first};
  return {"no fallback", holds,
          fmt::format("the log begins with \"{}\"; losses and parameters of {} steps on the card: "
                      "{}; {:.1f} MiB allocated there of {:.1f} that the training needs at least; "
                      "{:.2f} steps/s on the card, {:.2f} on the CPU",
                      first, cuda.losses.size(), cuda.all_on_cuda ? "all" : "NOT all", taken,
                      needed, gpu_rate, cpu_rate)};
}

EvidenceBox files_box(const EvidenceTexts& texts) {
  std::vector<std::string> missing;
  const auto look = [&](const std::string& text, const char* name) {
    if (text.empty()) missing.emplace_back(name);
  };
  look(texts.environment, "env_info.txt");
  look(texts.check, "torch_cuda_check.txt");
  look(texts.training, "training_log.txt");
  look(texts.smi, "nvidia_smi.txt");
  return {"files saved", missing.empty(),
          missing.empty() ? "env_info.txt, torch_cuda_check.txt, training_log.txt, nvidia_smi.txt"
                          : fmt::format("missing or empty: {}", fmt::join(missing, ", "))};
}

std::string or_none(const std::string& value) { return value.empty() ? "none" : value; }

// The known error behind `problem`; null where no row of the table fits. The problem's line may be
// less exact than what libraries wrote above it.
const KnownError* known_error(const EvidenceTexts& texts, const std::string& problem) {
  for (const std::string* text : {&problem, &texts.training, &texts.check}) {
    if (const KnownError* known = find_known_error(*text); known != nullptr) return known;
  }
  return nullptr;
}

std::string render_failure(const EvidenceTexts& texts) {
  const std::string problem = evidence_problem(texts);
  std::string text = "\n## What failed\n\n";
  if (problem.empty()) return text + "The open boxes say what is missing; no error was told.\n";
  text += fmt::format("- message: `{}`\n", problem);
  const KnownError* known = known_error(texts, problem);
  if (known == nullptr) return text + "- class: unknown; `mkbench doctor` may say more\n";
  return text + fmt::format("- class: **{}**\n- cause: {}\n- command: `{}`\n",
                            error_class_name(known->error_class), known->cause, known->command);
}

}  // namespace

std::vector<EvidenceBox> evidence_boxes(const EvidenceTexts& texts) {
  const auto checked = [&](const char* key) { return value_of(texts.check, key); };
  const Steps cuda = steps_of(texts.training, "cuda"), cpu = steps_of(texts.training, "cpu");
  return {
      {"cuda available", checked("cuda available") == "True",
       fmt::format("torch {}, built for CUDA {}, sees {} card(s)", or_none(checked("torch")),
                   or_none(checked("built for CUDA")), or_none(checked("cards")))},
      {"the card by name", !checked("card").empty(), or_none(checked("card"))},
      {"capability", !checked("capability").empty() && checked("product right") == "True",
       fmt::format("{}; a product on the card: {}", or_none(checked("capability")),
                   or_none(checked("product on the card")))},
      training_box(cuda),
      same_result_box(cuda, cpu),
      memory_box(texts),
      files_box(texts),
      fallback_box(texts, cuda),
  };
}

std::string evidence_problem(const EvidenceTexts& texts) {
  for (const std::string* text : {&texts.check, &texts.training, &texts.smi, &texts.environment}) {
    if (const std::string problem = value_of(*text, "problem"); !problem.empty()) return problem;
  }
  return "";
}

std::string evidence_advice(const EvidenceTexts& texts) {
  const std::string problem = evidence_problem(texts);
  if (problem.empty()) return "not every box holds";
  const KnownError* known = known_error(texts, problem);
  return known == nullptr ? problem : advice_text(*known);
}

bool evidence_complete(const EvidenceTexts& texts) {
  const std::vector<EvidenceBox> boxes = evidence_boxes(texts);
  return std::all_of(boxes.begin(), boxes.end(), [](const EvidenceBox& box) { return box.holds; });
}

std::string render_evidence(const EvidenceTexts& texts) {
  std::string text = "## Definition of done\n\n";
  size_t held = 0;
  const std::vector<EvidenceBox> boxes = evidence_boxes(texts);
  for (const EvidenceBox& box : boxes) {
    text += fmt::format("- [{}] **{}**: {}\n", box.holds ? 'x' : ' ', box.name, box.found);
    held += box.holds ? 1 : 0;
  }
  text += fmt::format("\n{} of {} boxes hold.\n", held, boxes.size());
  return held == boxes.size() ? text : text + render_failure(texts);
}

}  // namespace mkbench
