// The truth's search for known bugs: what it tries on which model, and what it makes of the logits
// and ids that an engine gave.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "baselines/eager.h"
#include "baselines/known_bugs.h"
#include "references/model_row.h"
#include "references/planted_fault.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

const ModelWeights& tiny() {
  static const ModelWeights weights = load_model(resolve_model("tiny"));
  return weights;
}
std::unique_ptr<Engine> truth() {
  return make_eager(tiny(), {.fp32 = true, .max_context = 64, .threads = 1});
}

constexpr int kSteps = 12;

// What the engine gives in its last steps on random ids, the first `prompt` of them prefilled.
ObservedRun run_of(Engine& engine, int prompt, uint64_t seed = 1) {
  const int vocab = tiny().config.shape.vocab;
  ObservedRun run;
  for (int i = 0; i < prompt + kSteps - 1; ++i)
    run.ids.push_back(static_cast<int32_t>(splitmix64(1000 * seed + static_cast<uint64_t>(i)) %
                                           static_cast<uint64_t>(vocab)));
  run.prompt = prompt;
  engine.reset();
  engine.prefill(std::span(run.ids).first(static_cast<size_t>(prompt)));
  std::vector<int32_t> forced(run.ids.begin() + prompt - 1, run.ids.end());
  run.logits.resize(static_cast<size_t>(kSteps * vocab));
  run.found = engine.decode(kSteps, forced.data(), run.logits.data());
  return run;
}

BugFits explained(std::vector<ObservedRun> runs, double seconds = 1000) {
  return truth()->explain({.runs = std::move(runs), .tau = 0.01, .seconds = seconds}).value();
}

ModelWeights with(const std::vector<PlantedFault>& faults) {
  ModelWeights weights = tiny();
  for (const PlantedFault fault : faults) weights = with_planted_fault(weights, fault);
  return weights;
}

ObservedRun run_with(const std::vector<PlantedFault>& faults, int prompt = 5) {
  const auto engine = make_eager(with(faults), {.fp32 = true, .max_context = 64, .threads = 1});
  return run_of(*engine, prompt);
}

std::set<std::string> names(const ModelConfig& config, int rows) {
  std::set<std::string> all;
  for (const KnownBug& bug : known_bugs(config, rows)) all.insert(bug.name);
  return all;
}

int layers_of(const std::vector<KnownBug>& bugs, const std::string& name) {
  int count = 0;
  for (const KnownBug& known : bugs) count += known.name == name && known.deviation.layer >= 0;
  return count;
}

}  // namespace

TEST_CASE("known bugs: those that a model can have") {
  const ModelConfig qwen3 = tiny().config;
  const auto of_qwen3 = names(qwen3, 20);
  for (const char* name : {"skip_q_norm", "norm_after_rope", "gelu", "gqa_map", "window"})
    CHECK(of_qwen3.count(name) == 1);
  for (const char* name :
       {"rope_unscaled", "bias_dropped", "head_of_embedding", "embedding_unscaled"})
    CHECK(of_qwen3.count(name) == 0);
  CHECK(names(qwen3, 2).count("window") == 0);  // 2 rows are all in the smallest window
  CHECK(names(qwen3, 3).count("window") == 1);
  const ModelConfig llama = load_model(resolve_model("tiny-llama")).config;
  CHECK(names(llama, 9).count("rope_unscaled") == 1);
  CHECK(names(llama, 9).count("skip_q_norm") == 0);
  const ModelConfig qwen2 = load_model(resolve_model("tiny-qwen2")).config;
  CHECK(names(qwen2, 9).count("bias_dropped") == 1);
  CHECK(names(qwen2, 9).count("gqa_map") == 0);  // one kv head
  const ModelConfig untied = load_model(resolve_model("tiny-untied")).config;
  CHECK(names(untied, 9).count("head_of_embedding") == 1);
  ModelConfig scaled = qwen3;
  scaled.shape.embedding_multiplier = 8;
  scaled.shape.activation = Activation::kGeluTanh;
  CHECK(names(scaled, 9).count("embedding_unscaled") == 1);
  CHECK(names(scaled, 9).count("gelu_tanh") == 0);
  CHECK(names(scaled, 9).count("silu") == 1);
}

TEST_CASE("known bugs: own values are none, and layers are tried one by one") {
  const auto bugs = known_bugs(tiny().config, 20);
  std::set<std::string> texts;
  for (const KnownBug& bug : bugs) {
    INFO(bug.text);
    CHECK(texts.insert(bug.text).second);
  }
  for (const char* own : {"rope_theta 1e+06", "rms_norm_eps 1e-06"}) CHECK(texts.count(own) == 0);
  for (const char* other : {"rope_theta 10000", "rms_norm_eps 1e-05"})
    CHECK(texts.count(other) == 1);
  CHECK(layers_of(bugs, "layer_skipped") == 4);
  CHECK(layers_of(bugs, "skip_q_norm") == 4);
  CHECK(layers_of(bugs, "gelu") == 0);
  std::vector<int> order;
  for (const KnownBug& known : bugs) order.push_back(known.deviation.layer);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  CHECK(order == std::vector<int>{-1, 0, 1, 2, 3, -1});
}

TEST_CASE("explain: bugs are found by logits, two together too, whatever is prefilled") {
  for (const int prompt : {1, 5}) {
    const BugFits one = explained({run_with({PlantedFault::kRopeInterleaved}, prompt)});
    CHECK(one.best.front().name == "rope_interleaved");
    CHECK(one.best.front().error < 0.01);
    CHECK(one.best.front().wrong == 0);
    CHECK(one.best[1].error > 0.2);
    CHECK(one.best.size() == kBestFits);
    CHECK(one.truth.error == 1);
    // It is clear, so the search ends 16 bugs behind it.
    const auto bugs = known_bugs(tiny().config, 20);
    const auto found = std::find_if(bugs.begin(), bugs.end(),
                                    [](const auto& bug) { return bug.name == "rope_interleaved"; });
    CHECK(one.tried == found - bugs.begin() + 1 + 16);
    CHECK(one.tried < one.known);
    CHECK_FALSE(one.timed_out);
  }
  // It explains the first run alone, then the second alone.
  const ObservedRun run = run_with({PlantedFault::kRopeInterleaved}),
                    other = run_with({PlantedFault::kRotateSign});
  for (const auto& runs : {std::vector{run, other}, {other, run}}) {
    const BugFits neither = explained(runs);
    CHECK(neither.tried == neither.known);
    CHECK_FALSE(neither.timed_out);
  }
  // Each of the two leaves more than half of the error.
  const BugFits two = explained({run_with({PlantedFault::kRotateSign, PlantedFault::kLayerTwice})});
  CHECK(two.best.front().name == "layer_before+rotate_sign");
  CHECK(two.best.front().error < 0.01);
}

// The first run's bugs of a layer go through the layers behind it together, those of 81 rows in two
// batches; on the second run each is computed alone.
TEST_CASE("explain: bugs of single layers tried together give what each gives alone") {
  for (const size_t layer : {0, 1, 3}) {
    ModelWeights weights = tiny();
    std::swap(weights.layers[layer].gate_proj, weights.layers[layer].up_proj);
    const auto engine = make_eager(weights, {.fp32 = true, .max_context = 128, .threads = 1});
    const ObservedRun run = run_of(*engine, layer == 1 ? 70 : 5);
    const BugFits together = explained({run}), alone = explained({run, run});
    CHECK(together.best.front().text ==
          "layer " + std::to_string(layer) + ": gate and up changed places");
    CHECK(together.best.front().error < 0.01);
    for (size_t i = 0; i < kBestFits; ++i) {
      INFO(together.best[i].text);
      CHECK(together.best[i].text == alone.best[i].text);
      CHECK(together.best[i].error == Approx(alone.best[i].error).epsilon(1e-3).margin(1e-4));
    }
  }
}

// The logits less their mean, step by step.
std::vector<float> centred(std::vector<float> logits) {
  const auto vocab = logits.size() / kSteps;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(vocab)) {
    const auto end = row + static_cast<std::ptrdiff_t>(vocab);
    const double mean = std::accumulate(row, end, 0.0) / static_cast<double>(vocab);
    std::for_each(row, end, [mean](float& x) { x -= static_cast<float>(mean); });
  }
  return logits;
}

// Noise that no bug explains, in the logits of a run, with the 2-norm `norm`.
ObservedRun with_noise(ObservedRun run, double norm) {
  std::vector<float> noise(run.logits.size());
  for (size_t i = 0; i < noise.size(); ++i)
    noise[i] = static_cast<float>(std::sin(static_cast<double>(i * i)));
  noise = centred(std::move(noise));
  const double have = std::sqrt(std::inner_product(noise.begin(), noise.end(), noise.begin(), 0.0));
  for (size_t i = 0; i < noise.size(); ++i)
    run.logits[i] += static_cast<float>(norm / have) * noise[i];
  return run;
}

// The bugs that explain the first run best are tried on the others: where noise comes first, they
// are not those of the run with the bug.
TEST_CASE("explain: a short run is tried before a long one, if it is about as wrong") {
  const auto engine = [](const std::vector<PlantedFault>& faults) {
    return make_eager(with(faults), {.fp32 = true, .max_context = 160, .threads = 1});
  };
  const auto turned = engine({PlantedFault::kRotateSign}), sound = engine({});
  const auto named = [&](int failing_rows, int other_rows, double share) {
    const ObservedRun failing = run_of(*turned, failing_rows + 1 - kSteps);
    REQUIRE(std::ssize(failing.ids) == failing_rows);
    const auto is = centred(failing.logits);
    const auto right = centred(run_of(*sound, failing_rows + 1 - kSteps).logits);
    double squares = 0;
    for (size_t i = 0; i < is.size(); ++i) squares += std::pow(double{is[i]} - right[i], 2);
    const ObservedRun other =
        with_noise(run_of(*sound, other_rows + 1 - kSteps, 2), share * std::sqrt(squares));
    const BugFits fits = explained({failing, other});
    return std::any_of(fits.best.begin(), fits.best.end(), [](const BugFit& fit) {
      return fit.name.find("rotate_sign") != std::string::npos;
    });
  };
  CHECK_FALSE(named(129, 128, 0.26));
  CHECK(named(129, 128, 0.24));
  CHECK(named(128, 127, 0.26));
  CHECK(named(129, 129, 0.26));
}

TEST_CASE("explain: bf16 arithmetic leaves the error that is foretold for it") {
  const auto eager = make_eager(tiny(), {.head_fp32 = true, .max_context = 64, .threads = 1});
  const BugFits right = explained({run_of(*eager, 5), run_of(*eager, 9, 2)});
  CHECK(right.truth.rounding > 0.5);
  CHECK(right.truth.rounding < 2);
  const auto wrong = make_eager(with({PlantedFault::kScaleTwice}),
                                {.head_fp32 = true, .max_context = 64, .threads = 1});
  const BugFit best = explained({run_of(*wrong, 5), run_of(*wrong, 9, 2)}).best.front();
  CHECK(best.name == "scale_twice");
  CHECK(best.error < 2 * best.rounding);
  CHECK(best.error > 0.5 * best.rounding);
}

TEST_CASE("explain: rows of the head that are never scored are counted") {
  const int vocab = tiny().config.shape.vocab;
  for (const float left : {0.0F, std::numeric_limits<float>::quiet_NaN()}) {
    ObservedRun run = run_with({});
    for (int t = 0; t < kSteps; ++t) {
      for (int i = vocab - 20; i < vocab; ++i)
        run.logits[static_cast<size_t>(t * vocab + i)] = left;
    }
    const BugFit best = explained({run}).best.front();
    CHECK(best.name == "head_tail");
    CHECK(best.text == "the last 20 rows of the LM head are never scored");
    CHECK(best.error < 0.01);
  }
}

TEST_CASE("explain: steps without finite logits are left out, and ids decide without logits") {
  ObservedRun run = run_with({PlantedFault::kRopeInterleaved});
  run.logits[3] = std::numeric_limits<float>::infinity();
  run.found[2] = -1;
  CHECK(explained({run}).best.front().name == "rope_interleaved");
  run.logits.clear();
  const BugFits by_ids = explained({run, run});
  CHECK(by_ids.best.front().name == "rope_interleaved");
  CHECK(by_ids.best.front().error == -1);
  CHECK(by_ids.truth.error == -1);
  CHECK(by_ids.truth.wrong >= kEnoughIds);
  CHECK(by_ids.tried == by_ids.known);
  // Where few ids are wrong, the same search tells nothing.
  const ObservedRun sound = run_with({});
  for (const int wrong : {kEnoughIds, kEnoughIds - 1}) {
    ObservedRun few = sound;
    few.logits.clear();
    for (int t = 0; t < wrong; ++t) few.found[static_cast<size_t>(t)] ^= 1;
    const BugFits fits = explained({few});
    CHECK(fits.truth.wrong == wrong);
    CHECK((fits.tried > 0) == (wrong == kEnoughIds));
  }
}

TEST_CASE("explain: without time no bug is tried") {
  const BugFits none = explained({run_with({PlantedFault::kRopeInterleaved})}, 0);
  CHECK(none.best.empty());
  CHECK(none.tried == 0);
  CHECK(none.timed_out);
  CHECK(none.known > 100);
}

TEST_CASE("explain: the truth alone does, and refuses runs that do not fit together") {
  const auto t = truth();
  const ObservedRun sound = run_of(*t, 5);
  const auto bf16 = make_eager(tiny(), {.max_context = 64, .threads = 1});
  CHECK_FALSE(bf16->explain({.runs = {sound}, .tau = 0, .seconds = 1}));
  const auto line = [&](const ObservedRun& run) {
    return error_line([&] { t->explain({.runs = {run}, .tau = 0, .seconds = 0}); });
  };
  CHECK(line(sound) == "accepted");
  ObservedRun run = sound;
  run.ids[3] = tiny().config.shape.vocab;
  CHECK(line(run) == "eager: explain: id is 259, wanted 0 to 258");
  for (const int prompt : {0, 6}) {
    run = sound;
    run.prompt = prompt;
    CHECK(line(run) == "eager: explain: a run has fewer rows than steps");
  }
  run = sound;
  run.found.clear();
  CHECK(line(run) == "eager: explain: a run has fewer rows than steps");
}
