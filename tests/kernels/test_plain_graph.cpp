// plain's phases as kernels of a graph, on a GPU: against the oracle and the closed form, alone and overlapping.
#include "kernels/plain/megakernel.h"
#include "tests/support/card_engine.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"

namespace mkbench {
namespace {

using namespace testing;

constexpr PlainLaunch kGraphs[] = {PlainLaunch::kGraph, PlainLaunch::kGraphOverlapping};

PlainLaunch any_graph() { return GENERATE(from_range(std::begin(kGraphs), std::end(kGraphs))); }
ModelWeights tiny() { return load_folder(data_dir() / "tiny", "tiny"); }

// sm_90 has the instructions by which kernels overlap.
bool no_card() {
  int major = 0;
  return no_gpu() ||
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
         major < 9;
}

// On a grid of three blocks the rows of gate_up, and of most models' qkv, do not fit, and stay in registers.
TEST_CASE("a graph of plain's phases agrees with the oracle, lengths 1 to 1,025", "[graph]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  const int blocks = GENERATE(0, 3);
  require_agreement_to_1025(name, [blocks](const ModelWeights& w, PlantedFault fault) {
    return make_plain(w,
                      {.launch = PlainLaunch::kGraphOverlapping, .blocks = blocks, .fault = fault});
  });
}

TEST_CASE("a graph follows four layers of every shape, by oracle and closed form", "[graph]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  ShapeRow row = GENERATE(from_range(analytic_models().begin(), analytic_models().end()));
  row.shape.layers = 4;
  INFO(row.name);
  const ModelWeights w = make_synthetic(row, "short");
  const auto e = make_plain(w, {.launch = PlainLaunch::kGraphOverlapping, .max_context = 512});
  require_closed_form(*e, row.shape.vocab);
  Oracle oracle(w);
  require_follows(*e, oracle, row.shape);
}

TEST_CASE("kernels that overlap give the bits of kernels that do not", "[graph]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  const ModelWeights w = make_synthetic("short");
  std::vector<Run> runs;
  for (const PlainLaunch launch : kGraphs) {
    const auto e = make_plain(w, {.launch = launch, .max_context = 1024});
    for (const int depth : {11, 700})
      runs.push_back(run(*e, synthetic_prompt(depth, 3), 64, w.config.shape.vocab));
  }
  CHECK(runs[0].ids == synthetic_continuation(synthetic_prompt(11, 3), "short", 64));
  CHECK(runs[2] == runs[0]);
  CHECK(runs[3] == runs[1]);
}

TEST_CASE("a graph repeats itself, goes back, takes vectors and tells its times", "[graph]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  const PlainLaunch launch = any_graph();
  const ModelWeights w = tiny();
  const auto make = [&](int context) {
    return make_plain(w, {.launch = launch, .max_context = context});
  };
  const auto e = make(512);
  CHECK(e->capabilities().name == plain_name(launch));
  CHECK_FALSE(e->capabilities().one_launch);
  require_repeats(*e, *make(4096), corpus_ids(70), corpus_ids(11), 64, w.config.shape.vocab);
  require_rewinds(*make(256), *make(256), corpus_ids(70), w.config.shape.vocab);
  require_rows_equal_ids(*make(64), w);
  require_refuses_requests(*make(16), w.config.shape.vocab);
  e->reset();
  e->prefill(corpus_ids(10));
  const int64_t before = e->launch_count();
  CHECK(e->decode(5).size() == 5);
  CHECK(e->launch_count() == before + 5);
  const DecodeTimes times = e->last_times();
  CHECK(times.per_token_ms.size() == 5);
  CHECK(*std::min_element(times.per_token_ms.begin(), times.per_token_ms.end()) > 0);
  CHECK(times.sm_ghz == 0);
}

TEST_CASE("in a graph a NaN logit gives no token, and the sequence ends there", "[graph]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  const ModelWeights original = tiny();
  std::vector<Bf16> head(original.embed_tokens.data,
                         original.embed_tokens.data + original.embed_tokens.size());
  head[200 * static_cast<size_t>(kTiny.hidden) + 3] = Bf16{0x7fc0};
  ModelWeights w = original;
  w.config.tie_word_embeddings = false;
  w.lm_head = {head.data(), w.config.shape.vocab, w.config.shape.hidden};
  const auto e = make_plain(w, {.launch = any_graph(), .max_context = 64});
  e->prefill(corpus_ids(10));
  require_ends_at_nan(*e);
}

// Also under compute-sanitizer's memcheck.
TEST_CASE("a graph stays inside its buffers, filled to the last position", "[graph][memcheck]") {
  if (no_card()) SKIP_TEST("no GPU of sm_90");
  const std::string name = GENERATE(as<std::string>(), "tiny", "tiny-llama", "tiny-qwen2");
  const ModelWeights w = load_folder(data_dir() / name, name);
  constexpr int kContext = 131;  // three splits in the last step
  const auto e = make_plain(w, {.launch = any_graph(), .max_context = kContext});
  require_stays_inside(*e, corpus_ids(kContext - 40), 41, w.config.shape.vocab);
}

}  // namespace
}  // namespace mkbench
