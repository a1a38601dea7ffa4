// The host twin against the fp32 oracle: odd shapes with random weights, and the committed checkpoints.
//
// Twin and oracle differ by the KV cache's bf16 (8 significant bits, at most 2^-8 relative a value)
// and by the order of sums. Measured relative errors of logits with these inputs (x86-64 with
// AVX2): random weights worst step 0.0036, rms 0.0010; tiny and tiny-untied to length 1,025 worst
// 0.0120, rms 0.0022; their first layer alone to length 4,096 worst 0.0011, rms 0.0005; hidden
// states 0.0023. tiny-llama and tiny-qwen2, whose queries and keys have no norm: 0.0191, 0.0036; 0.0025,
// 0.0015; 0.0075. With planted faults (tiny): rms 0.41 to 0.83.
#include "kernels/host_twin/host_twin.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"
#include "tests/support/small_analytic.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("host twin agrees with the oracle on odd shapes", "[host_twin][oracle]") {
  // hidden, intermediate, layers, heads, kv_heads, head_dim, vocab: a shape with tails in all
  // loops, one without GQA, one with a single kv head, one of Llama's and one of Qwen2's layers, and
  // two with other steps.
  for (const ModelShape shape :
       {ModelShape{20, 36, 3, 6, 2, 10, 97}, ModelShape{64, 96, 2, 4, 4, 16, 131},
        ModelShape{48, 80, 2, 3, 1, 32, 61}, ModelShape{48, 80, 2, 4, 2, 16, 61, false, false},
        ModelShape{20, 36, 3, 6, 2, 10, 97, false, true},
        with_other_steps({20, 36, 3, 6, 2, 10, 97}),
        with_other_steps({48, 80, 2, 4, 2, 16, 61, false, false})}) {
    for (const bool tied : {false, true}) {
      const ModelWeights w = random_model(shape, {.rope_theta = 3e4, .tied = tied});
      const auto ids = random_ids(300, shape.vocab);
      Oracle oracle(w, 1);
      const auto truth = truth_of(oracle, ids);
      for (const int blocks : {1, 3, 8, 16, 128}) {
        const auto e = make_host_twin(w, {.max_context = 300, .blocks = blocks});
        INFO("hidden " << shape.hidden << ", tied " << tied << ", blocks " << blocks);
        require_close(compare_all(*e, ids, truth, kRandomLimits.margin), kRandomLimits, 0.7);
        require_hidden_close(*e, oracle);
      }
    }
  }
}

TEST_CASE("host twin follows the closed form of other families", "[host_twin]") {
  for (const ShapeRow& row : kSmallAnalytic) {
    INFO(row.name);
    const auto e = make_host_twin(make_synthetic(row, "short"), {.max_context = 64});
    const auto prompt = synthetic_prompt(13, 3, row.shape.vocab);
    e->prefill(prompt);
    REQUIRE(e->decode(16) == synthetic_continuation(prompt, "short", 16, row.shape.vocab));
  }
}

TEST_CASE("host twin takes hidden vectors and gives them, as the oracle does",
          "[host_twin][oracle]") {
  for (const bool tied : {false, true}) {
    // A multiplier of the embedding: it is not of vectors.
    ModelShape shape{20, 36, 3, 6, 2, 10, 97};
    shape.embedding_multiplier = tied ? 1 : 3;
    const ModelWeights w = random_model(shape, {.tied = tied});
    for (const int blocks : {1, 3, 16}) {
      INFO("tied " << tied << ", blocks " << blocks);
      const auto e = make_host_twin(w, {.max_context = 50, .blocks = blocks});
      REQUIRE(e->capabilities().vectors);
      require_vectors_agree(*e, w, kRandomLimits);
      if (tied) require_rows_equal_ids(*e, w);
      require_vectors_refused(*e, w);
    }
  }
}

TEST_CASE("KV rows are the oracle's, rounded to bf16", "[host_twin][oracle]") {
  const ModelWeights w = random_model({20, 36, 3, 6, 2, 10, 97});
  const auto ids = random_ids(50, 97);
  Oracle oracle(w, 1);
  truth_of(oracle, ids);
  const auto e = make_host_twin(w, {.max_context = 50});
  e->set_pending(ids[0]);
  e->decode(50, ids.data());
  for (int position = 0; position < 50; ++position) {
    const auto found = e->kv_row(0, position).value();
    const auto wanted = oracle.kv_row(0, position);
    REQUIRE(found.size() == wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      // Layer 0 has no other errors than half a step of bf16 and the noise of fp32, which may turn
      // a rounding the other way.
      REQUIRE(std::abs(found[i] - wanted[i]) <= 0x1.01p-8f * std::abs(wanted[i]) + 1e-6f);
    }
    REQUIRE(relative_error(e->kv_row(2, position).value(), oracle.kv_row(2, position)) <= 0.01);
  }
}

TEST_CASE("host twin agrees with the oracle on the tiny checkpoints, lengths 1 to 1,025",
          "[host_twin][oracle]") {
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  require_agreement_to_1025(name, [](const ModelWeights& w, PlantedFault fault) {
    return make_host_twin(w, {.fault = fault});
  });
}

TEST_CASE("host twin agrees with the oracle to the last position", "[host_twin][oracle]") {
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  require_agreement_to_the_end(name, [](const ModelWeights& w, PlantedFault fault) {
    return make_host_twin(w, {.blocks = 16, .fault = fault});
  });
}

}  // namespace
}  // namespace mkbench
