// The oracle against the fp32 answers of HF transformers, and against itself.
#include <algorithm>
#include <cmath>

#include "references/base/error.h"
#include "references/greedy_reference.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

// Largest error of a logit relative to the largest logit, where fp32 is summed in another order.
// 3e-6 was seen.
constexpr double kTolerance = 1e-4;

ModelWeights tiny(const std::string& name) { return load_folder(data_dir() / name, name); }

GreedyReference reference_of(const std::string& name) {
  const auto files = find_references(data_dir(), name);
  REQUIRE_FALSE(files.empty());
  return read_reference(files.front());
}

// The largest error of one step over the truth's top ids, relative to its largest absolute logit.
double compare_step(const std::vector<float>& logits, const ReferenceStep& step) {
  double largest = 0;
  for (size_t i = 0; i < step.top_ids.size(); ++i) {
    const double found = logits[static_cast<size_t>(step.top_ids[i])];
    largest = std::max(largest, std::abs(found - step.top_logits[i]) / step.max_abs);
  }
  double sum = 0, mean = 0, norm = 0;
  const double top = *std::max_element(logits.begin(), logits.end());
  for (float z : logits) sum += std::exp(z - top), mean += z;
  mean /= static_cast<double>(logits.size());
  for (float z : logits) norm += (z - mean) * (z - mean);
  largest = std::max(largest, std::abs(top + std::log(sum) - step.logsumexp) / step.max_abs);
  largest = std::max(largest, std::abs(mean - step.mean) / step.max_abs);
  return std::max(largest, std::abs(std::sqrt(norm) - step.centred_norm) / step.centred_norm);
}

struct Comparison {
  double largest_error = 0, largest_sketch_error = 0;
  int steps = 0, wrong = 0;
};

// Forces the first `steps` steps of one prompt and compares each.
void follow(Oracle& oracle, const GreedyReference& reference, const ReferencePrompt& prompt,
            size_t steps, Comparison& total) {
  oracle.reset();
  for (size_t i = 0; i + 1 < prompt.ids.size(); ++i) oracle.step(prompt.ids[i], false);
  int32_t input = prompt.ids.back();
  for (size_t t = 0; t < std::min(steps, prompt.steps.size()); ++t) {
    const ReferenceStep& step = prompt.steps[t];
    CHECK(oracle.position() == step.position);
    const std::vector<float> logits = oracle.step(input);
    total.largest_error = std::max(total.largest_error, compare_step(logits, step));
    const auto sketch = sketch_of(logits.data(), static_cast<int>(logits.size()),
                                  reference.sketch_seed, reference.sketch_projections);
    for (size_t p = 0; p < sketch.size(); ++p) {
      total.largest_sketch_error =
          std::max(total.largest_sketch_error,
                   std::abs(double{sketch[p]} - step.sketch[p]) / step.centred_norm);
    }
    total.wrong += argmax_lowest(logits) != step.token;
    ++total.steps;
    input = step.token;
  }
}

Comparison follow_all(const std::string& name) {
  const GreedyReference reference = reference_of(name);
  const ModelWeights weights = tiny(name);
  REQUIRE(reference.weights_sha256 == weights.sha256);
  Oracle oracle(weights);
  Comparison total;
  for (const ReferencePrompt& prompt : reference.prompts) {
    follow(oracle, reference, prompt, prompt.steps.size(), total);
  }
  return total;
}

}  // namespace

TEST_CASE("the oracle gives HF's fp32 logits on both tiny checkpoints, all prompts") {
  for (const char* name : {"tiny", "tiny-untied"}) {
    INFO(name);
    const Comparison total = follow_all(name);
    CHECK(total.steps >= 500);
    CHECK(total.wrong == 0);
    CHECK(total.largest_error < kTolerance);
    CHECK(total.largest_sketch_error < kTolerance);
  }
}

TEST_CASE("a wrong theta is seen by this comparison") {
  const GreedyReference reference = reference_of("tiny");
  ModelWeights weights = tiny("tiny");
  weights.config.rope.theta = 1e4;
  Oracle oracle(weights);
  Comparison total;
  follow(oracle, reference, reference.prompts[0], 64, total);
  CHECK(total.largest_error > 10 * kTolerance);
}

TEST_CASE("one thread and three give the same bits, and so does a second run") {
  const ModelWeights weights = tiny("tiny-untied");
  Oracle one(weights, 1), three(weights, 3);
  std::vector<float> first, second;
  for (int32_t id : {256, 65, 32, 115, 109}) {
    first = one.step(id);
    CHECK(first == three.step(id));
  }
  one.reset();
  CHECK(one.position() == 0);
  for (int32_t id : {256, 65, 32, 115, 109}) second = one.step(id);
  CHECK(first == second);
  CHECK(one.kv_row(3, 2) == three.kv_row(3, 2));
  CHECK(one.hidden_states() == three.hidden_states());
}

TEST_CASE("shapes, and requests that are refused") {
  ModelWeights weights = tiny("tiny");
  weights.config.max_positions = 2;
  Oracle oracle(weights, 1);
  CHECK(oracle.step(1, false).empty());
  CHECK(oracle.step(2).size() == 259);
  CHECK(oracle.hidden_states().size() == 4);
  CHECK(oracle.hidden_states()[3].size() == 128);
  CHECK(oracle.kv_row(0, 1).size() == 512);
  CHECK_THROWS_AS(oracle.kv_row(0, 2), Error);
  CHECK_THROWS_AS(oracle.kv_row(4, 0), Error);
  CHECK_THROWS_AS(oracle.step(3), Error);  // the context is full
  oracle.reset();
  CHECK_THROWS_AS(oracle.step(-1), Error);
  CHECK_THROWS_AS(oracle.step(259), Error);
}

TEST_CASE("argmax takes the lowest index of the largest, and no NaN") {
  CHECK(argmax_lowest(std::vector<float>{1, 3, 2, 3}) == 1);
  CHECK(argmax_lowest(std::vector<float>{-INFINITY, -INFINITY}) == 0);
  CHECK(argmax_lowest(std::vector<float>{1, NAN, 3}) == -1);
  CHECK(argmax_lowest(std::vector<float>{}) == -1);
}

TEST_CASE("every position of a tiny checkpoint stays finite") {
#ifdef __SANITIZE_ADDRESS__
  SKIP_TEST("an unoptimised oracle is too slow for 4,096 positions");
#endif
  ModelWeights cut = tiny("tiny");  // one layer has all positions, in a quarter of the time
  cut.config.shape.layers = 1;
  cut.layers.resize(1);
  Oracle oracle(cut);
  std::vector<float> logits;
  for (int i = 0; i < 4096; ++i) logits = oracle.step('a' + i % 26, i == 4095);
  CHECK(std::all_of(logits.begin(), logits.end(), [](float z) { return std::isfinite(z); }));
  CHECK_THROWS_AS(oracle.step(97), Error);
}

TEST_CASE("full size: closed form, HF's logits and the oracle agree on synthetic:short") {
#ifdef __SANITIZE_ADDRESS__
  SKIP_TEST("an unoptimised oracle is too slow for full size");
#endif
  const GreedyReference reference = reference_of("synthetic:short");
  const ModelWeights weights = make_synthetic("short");
  REQUIRE(reference.weights_sha256 == weights.sha256);
  const ReferencePrompt& prompt = reference.prompts.front();
  REQUIRE(prompt.set == "strict");
  const auto closed = synthetic_continuation(prompt.ids, "short", 6);
  Oracle oracle(weights);
  Comparison total;
  follow(oracle, reference, prompt, closed.size(), total);
  CHECK(total.steps == 6);
  CHECK(total.wrong == 0);
  CHECK(total.largest_error < kTolerance);
  CHECK(total.largest_sketch_error < kTolerance);
  for (size_t t = 0; t < closed.size(); ++t) CHECK(prompt.steps[t].token == closed[t]);
}
