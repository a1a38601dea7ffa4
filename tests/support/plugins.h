// Helpers for tests of plugins: a small model, engines for it from the built examples, and the
// oracle's ids.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/plugin/engine.h"
#include "references/oracle.h"
#include "tests/support/random_model.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {

inline const ModelWeights& plugin_model() {
  static const ModelWeights weights = random_model({.hidden = 64,
                                                    .intermediate = 96,
                                                    .layers = 2,
                                                    .heads = 4,
                                                    .kv_heads = 2,
                                                    .head_dim = 32,
                                                    .vocab = 97});
  return weights;
}

// Opens the example `name`. The variable MKBENCH_PLUGINS names the folder of the built examples.
inline std::unique_ptr<Engine> make_example(const std::string& name, bool cuda = false,
                                            int max_context = 64) {
  return make_plugin(plugin_model(), {.path = fmt::format("{}/{}.so", MKBENCH_PLUGINS, name),
                                      .cuda = cuda,
                                      .max_context = max_context});
}

// The oracle's greedy ids after `prompt`, with `forced` as inputs unless it is null.
inline std::vector<int32_t> oracle_ids(const std::vector<int32_t>& prompt, int n,
                                       const int32_t* forced = nullptr,
                                       std::vector<float>* logits = nullptr) {
  Oracle oracle(plugin_model(), 1);
  for (size_t i = 0; i + 1 < prompt.size(); ++i) oracle.step(prompt[i], false);
  std::vector<int32_t> ids;
  int32_t input = prompt.back();
  for (int t = 0; t < n; ++t) {
    if (t > 0 && forced != nullptr) input = forced[t];
    const std::vector<float> row = oracle.step(input);
    if (logits != nullptr) logits->insert(logits->end(), row.begin(), row.end());
    ids.push_back(input = argmax_lowest(row));
  }
  return ids;
}

}  // namespace mkbench::testing
