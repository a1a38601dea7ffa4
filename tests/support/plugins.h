// Helpers for tests of plugins: a small model, engines for it from the built examples, and the ids
// that they must give.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
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

// The variable MKBENCH_PLUGINS names the folder of the built examples.
inline std::string example_path(const std::string& name) {
  return fmt::format("{}/{}.so", MKBENCH_PLUGINS, name);
}

inline std::unique_ptr<Engine> make_example(const std::string& name, bool cuda = false,
                                            int max_context = 64,
                                            const ModelWeights& model = plugin_model()) {
  return make_plugin(model, {.path = example_path(name), .cuda = cuda, .max_context = max_context});
}

inline const std::vector<int32_t> kPrompt = {5, 17, 96, 0, 33};

// kPrompt with another last id.
inline std::vector<int32_t> late(int32_t id) {
  std::vector<int32_t> ids = kPrompt;
  ids.back() = id;
  return ids;
}

// The example counting.c with a fault, after a prefill of kPrompt.
inline std::unique_ptr<Engine> counting(const char* fault = "") {
  setenv("COUNTING_FAULT", fault, 1);
  std::unique_ptr<Engine> engine = make_example("counting");
  unsetenv("COUNTING_FAULT");
  engine->prefill(kPrompt);
  return engine;
}

// The ids that tests/plugins/counting.c emits after `ids`.
inline std::vector<int32_t> counted(std::vector<int32_t> ids, int n) {
  std::vector<int32_t> emitted;
  for (int t = 0; t < n; ++t) {
    int64_t sum = 1;
    for (size_t i = 0; i < ids.size(); ++i) sum += static_cast<int64_t>(i + 1) * ids[i];
    ids.push_back(static_cast<int32_t>(sum % 97));
    emitted.push_back(ids.back());
  }
  return emitted;
}

// The oracle's greedy ids after `prompt`, with `forced` as inputs unless it is null.
inline std::vector<int32_t> oracle_ids(const std::vector<int32_t>& prompt, int n,
                                       const int32_t* forced = nullptr,
                                       std::vector<float>* logits = nullptr,
                                       const ModelWeights& model = plugin_model()) {
  Oracle oracle(model, 1);
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
