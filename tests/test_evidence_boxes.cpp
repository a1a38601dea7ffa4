// The boxes of `mkbench evidence`: all hold on a good folder, and each change of a file opens the
// boxes that rest on it and no other.
#include <fmt/format.h>

#include "harness/parent/evidence_boxes.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

EvidenceTexts good() {
  EvidenceTexts texts;
  texts.environment = "date: 2026-01-01T00:00:00Z\n";
  texts.check =
      "torch: 2.11.0+cu130\nbuilt for CUDA: 13.0\ncuda available: True\ncards: 1\n"
      "card: NVIDIA H100 80GB HBM3\ncapability: 9.0\nproduct on the card: sum 5, wanted 5\n"
      "product right: True\n";
  texts.training = "Using device: cuda\n";
  for (int step = 1; step <= 50; ++step)
    texts.training += fmt::format("cuda step {}: loss {:.4f} on cuda:0\n", step, 5.5 - step * 0.05);
  texts.training +=
      "MiB that the training needs at least: 16.5\nMiB that torch allocated on the card: 80.1\n";
  for (int step = 1; step <= 12; ++step)
    texts.training += fmt::format("cpu step {}: loss {:.4f} on cpu\n", step, 5.5 - step * 0.05);
  texts.training += "cuda steps/s: 91.20\ncpu steps/s: 8.40\n";
  texts.smi =
      "taken during: steps 51 to 93 of the training, from 2026-01-01T00:00:09Z on\n"
      "our process: 77\nMiB of our process: 612\ncounted by: nvidia-smi's row of process 77\n";
  return texts;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
}

// Names of the boxes that do not hold, each followed by a blank.
std::string open_boxes(const EvidenceTexts& texts) {
  std::string names;
  for (const EvidenceBox& box : evidence_boxes(texts)) {
    if (!box.holds) names += box.name + "; ";
  }
  return names;
}

struct Change {
  std::string EvidenceTexts::*text;
  const char* from;
  const char* to;
  const char* opens;
};

TEST_CASE("all boxes hold on a good folder") {
  const EvidenceTexts texts = good();
  CHECK(open_boxes(texts).empty());
  CHECK(evidence_complete(texts));
  const std::string text = render_evidence(texts);
  CHECK(text.find("- [x] **the card by name**: NVIDIA H100 80GB HBM3\n") != std::string::npos);
  CHECK(text.find("612 MiB by nvidia-smi's row of process 77; taken during steps 51 to 93") !=
        std::string::npos);
  CHECK(text.find("went from 5.350 to 3.100") != std::string::npos);
  CHECK(text.find("8 of 8 boxes hold.\n") != std::string::npos);
  CHECK(text.find("What failed") == std::string::npos);
}

TEST_CASE("a change of a file opens the boxes that rest on it") {
  using T = EvidenceTexts;
  const Change changes[] = {
      {&T::check, "cuda available: True", "cuda available: False", "cuda available; "},
      {&T::check, "card: NVIDIA H100 80GB HBM3\n", "", "the card by name; "},
      {&T::check, "capability: 9.0\n", "", "capability; "},
      {&T::check, "product right: True", "product right: False", "capability; "},
      {&T::training, "Using device: cuda\n", "Using device: cpu\n", "no fallback; "},
      {&T::training, "Using device: cuda\n", "Using device: cuda (or not)\n", "no fallback; "},
      {&T::training, "cuda step 50: loss 3.0000 on cuda:0\n", "", "training on cuda; "},
      {&T::training, "cuda step 9: ", "cuda step 8: ", "training on cuda; "},
      {&T::training, "cuda step 50: loss 3.0000", "cuda step 50: loss 99.0", "training on cuda; "},
      {&T::training, "cuda step 50: loss 3.0000", "cuda step 50: loss 11.0", "training on cuda; "},
      {&T::training, "cuda step 50: loss 3.0000", "cuda step 50: loss nan", "training on cuda; "},
      {&T::training, "cuda step 7: loss 5.1500 on cuda:0", "cuda step 7: loss 5.1500 on cpu",
       "no fallback; "},
      {&T::training, "cuda step 7: loss 5.1500 on cuda:0",
       "cuda step 7: loss 5.1500 on cpu and cuda:0", "no fallback; "},
      {&T::training, "cuda step 7: loss 5.1500 on cuda:0",
       "cuda step 7: loss 5.1500 on cuda:0 and cpu", "no fallback; "},
      {&T::training, "cuda step 1: loss 5.4500", "cuda step 1: loss 5.4515",
       "same result as the CPU; "},
      {&T::training, "cuda step 1: loss 5.4500", "cuda step 1: loss nan",
       "training on cuda; same result as the CPU; "},
      {&T::training, "on the card: 80.1", "on the card: 16.4", "no fallback; "},
      {&T::training, "cuda steps/s: 91.20\n", "", "no fallback; "},
      {&T::training, "cpu steps/s: 8.40\n", "", "no fallback; "},
      {&T::smi, "MiB of our process: 612", "MiB of our process: unknown", "memory allocated; "},
      {&T::smi, "steps 51 to 93", "nothing, no training ran", "memory allocated; "},
  };
  for (const Change& change : changes) {
    EvidenceTexts texts = good();
    replace(texts.*change.text, change.from, change.to);
    INFO(change.from << " -> " << change.to);
    CHECK(open_boxes(texts) == change.opens);
    CHECK_FALSE(evidence_complete(texts));
  }
}

TEST_CASE("files that are missing") {
  EvidenceTexts texts = good();
  texts.smi.clear();
  texts.environment.clear();
  CHECK(open_boxes(texts) == "memory allocated; files saved; ");
  CHECK(render_evidence(texts).find("missing or empty: env_info.txt, nvidia_smi.txt") !=
        std::string::npos);
  CHECK(evidence_boxes({}).size() == evidence_boxes(good()).size());
  CHECK_FALSE(evidence_complete({}));
}

TEST_CASE("the class of a failure") {
  struct Row {
    const char* problem;
    const char* error_class;
  };
  const Row rows[] = {
      {"torch.AcceleratorError: CUDA error: no kernel image is available for execution", "wheel"},
      {"Torch not compiled with CUDA enabled: torch 2.9.1+cpu is a wheel for the CPU", "wheel"},
      {"RuntimeError: Found no NVIDIA driver on your system.", "driver"},
      {"torch.cuda.is_available() is False", "image"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "memory"},
      {"ImportError: libcudart.so.13: cannot open shared object file", "CUDA"},
  };
  for (const Row& row : rows) {
    EvidenceTexts texts;
    texts.check = fmt::format("torch: 2.11.0\nproblem: {}\n", row.problem);
    texts.training = "Using device: none\nproblem: another\n";
    INFO(row.problem);
    CHECK(evidence_problem(texts) == row.problem);
    CHECK(render_evidence(texts).find(fmt::format("- class: **{}**\n", row.error_class)) !=
          std::string::npos);
    CHECK(evidence_advice(texts).starts_with(fmt::format("{}: ", row.error_class)));
  }

  // The line that a library wrote above a problem that no row fits.
  EvidenceTexts texts;
  texts.training = "CUDA error: device busy or unavailable\nproblem: ended with exit code 1\n";
  CHECK(render_evidence(texts).find("- class: **driver**") != std::string::npos);
  texts.training = "problem: ended with exit code 1\n";
  CHECK(render_evidence(texts).find("- class: unknown") != std::string::npos);
  CHECK(evidence_advice(texts) == "ended with exit code 1");
  CHECK(evidence_advice({}) == "not every box holds");
}

}  // namespace
}  // namespace mkbench
