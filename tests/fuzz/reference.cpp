// A reference file of HuggingFace's tokens.
#include <cmath>

#include "references/greedy_reference.h"
#include "tests/fuzz/input.h"

using namespace mkbench;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(data, size);
  GreedyReference reference;
  const bool accepted = fuzz::accepts({ErrorKind::kInvalidReference},
                                      [&] { reference = read_reference(file.path()); });
  if (!accepted) return 0;
  fuzz::expect(reference.sha256.size() == 64, "the file's hash is known");
  fuzz::expect(reference.pairwise_d >= 0 && reference.pairwise_d <= largest_d(reference.prompts),
               "D is from 0 to the largest that calibrates");
  fuzz::expect(!reference.prompts.empty(), "there are prompts");
  for (const ReferencePrompt& prompt : reference.prompts) {
    fuzz::expect(!prompt.ids.empty() && !prompt.steps.empty(), "a prompt has ids and steps");
    for (const ReferenceStep& step : prompt.steps)
      fuzz::expect(std::isfinite(step.margin) && step.margin >= 0,
                   "margins are finite, not negative");
  }
  return 0;
}
