// The parity judge on real weights and real references: the fp32 oracle passes against HF's
// references of the tiny checkpoints, and each planted fault fails.
#include <cmath>
#include <functional>

#include "harness/judge/parity.h"
#include "harness/selftest/recorded_engine.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

GreedyReference reference_of(const std::string& model) {
  const auto files = find_references(data_dir(), model);
  REQUIRE(files.size() == 1);
  return read_reference(files[0]);
}

// The first strict and the first near-tie prompts, `steps` steps of each.
GreedyReference shortened(GreedyReference reference, size_t prompts, size_t steps) {
  std::vector<ReferencePrompt> kept;
  for (const char* set : {"strict", "near-tie"}) {
    size_t taken = 0;
    for (const ReferencePrompt& p : reference.prompts) {
      if (p.set != set || p.ids.size() > 40 || taken++ == prompts) continue;
      kept.push_back(p);
      kept.back().steps.resize(std::min(steps, p.steps.size()));
    }
  }
  reference.prompts = kept;
  return reference;
}

ParityReport judge(const ModelWeights& weights, const GreedyReference& reference) {
  const std::unique_ptr<Engine> engine = make_oracle_engine(weights);
  ParityOptions options;
  options.vocab = weights.config.shape.vocab;
  return judge_parity(*engine, reference, options);
}

struct Fault {
  const char* name;
  std::function<void(ModelWeights&)> plant;
};

// Faults of public kernels for this model, as far as weights and config can show them.
const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"rope_theta 10000", [](ModelWeights& w) { w.config.rope.theta = 10000; }},
      {"gate and up swapped",
       [](ModelWeights& w) {
         for (LayerWeights& layer : w.layers) std::swap(layer.gate_proj, layer.up_proj);
       }},
      {"q_norm and k_norm swapped in one layer",
       [](ModelWeights& w) { std::swap(w.layers[1].q_norm, w.layers[1].k_norm); }},
      {"one layer run twice", [](ModelWeights& w) { w.layers[2] = w.layers[1]; }},
      {"v_proj of the next layer",
       [](ModelWeights& w) { w.layers[0].v_proj = w.layers[1].v_proj; }},
      {"final norm of a layer",
       [](ModelWeights& w) { w.final_norm = w.layers[3].input_layernorm; }},
      {"epsilon of another model", [](ModelWeights& w) { w.config.rms_norm_eps = 0.1; }},
  };
  return list;
}

}  // namespace

TEST_CASE("the oracle passes against HF's references of the tiny checkpoints") {
  for (const std::string model : {"tiny", "tiny-untied", "tiny-llama", "tiny-qwen2"}) {
    INFO(model);
    const ModelWeights weights = load_model(resolve_model(model));
    const GreedyReference reference = shortened(reference_of(model), 3, 40);
    CHECK(reference.weights_sha256 == weights.sha256);
    const ParityReport p = judge(weights, reference);
    INFO(p.reason);
    CHECK(p.verdict == Verdict::kPass);
    CHECK(p.strict_steps == 120);
    CHECK(p.strict_matched == p.strict_steps);
    CHECK(p.self_inconsistent == 0);
    REQUIRE(p.r_rms);
    // Both are fp32 and differ by the order of their sums, thousands of times less than bf16 errs.
    CHECK(*p.r_rms < 0.01);
  }
}

TEST_CASE("faults planted in weights and config fail against HF's references") {
  const ModelWeights weights = load_model(resolve_model("tiny"));
  const GreedyReference reference = shortened(reference_of("tiny"), 2, 24);
  CHECK(judge(weights, reference).verdict == Verdict::kPass);
  for (const Fault& fault : faults()) {
    ModelWeights wrong = weights;
    fault.plant(wrong);
    const ParityReport p = judge(wrong, reference);
    INFO(fault.name);
    CHECK(exit_code(p.verdict) == 3);
    REQUIRE(p.r_rms);
    CHECK(*p.r_rms > 1.25);
  }
}

TEST_CASE("one NaN in a weight is seen, and never answered with token 0") {
  ModelWeights weights = load_model(resolve_model("tiny"));
  const Matrix& down = weights.layers[1].down_proj;
  auto copy = std::make_shared<std::vector<Bf16>>(down.data, down.data + down.size());
  (*copy)[777] = to_bf16(std::nanf(""));
  weights.layers[1].down_proj.data = copy->data();
  const ParityReport p = judge(weights, shortened(reference_of("tiny"), 1, 6));
  CHECK(p.verdict == Verdict::kFailFidelity);
  CHECK(p.non_finite > 0);
  CHECK_THAT(p.reason, ContainsText("NaN"));
}
