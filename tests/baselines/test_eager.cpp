// The eager baseline on the CPU, and its parts that need no device.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baselines/eager.h"
#include "references/base/error.h"
#include "references/model/family.h"
#include "tests/baselines/eager_lanes.h"
#include "tests/support/catch2.h"
#include "tests/support/llama3_rope.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"
#include "tests/support/thrown.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

ModelWeights load(const std::string& model) { return load_model(resolve_model(model)); }

}  // namespace

TEST_CASE("eager equals the committed references, and faults planted in it change tokens") {
  check_eager(kCpu);
}

TEST_CASE("eager meets the engine contract") { check_contract(kCpu); }

TEST_CASE("eager takes rows of the embedding as vectors, and refuses what is no input") {
  const ModelWeights tiny = load("tiny-untied");
  const auto e = make_eager(tiny, options_for(kCpu));
  CHECK(e->capabilities().vectors);
  require_rows_equal_ids(*e, tiny);
  require_vectors_refused(*e, tiny);
  const auto truth = make_eager(tiny, {.fp32 = true, .max_context = 64});
  require_vectors_agree(*truth, tiny, {1e-4, 1e-4, 0});
  const auto graph = make_eager(tiny, options_for(kGraphOnCpu));
  CHECK_FALSE(graph->capabilities().vectors);
  CHECK_THROWS_WITH(graph->decode_vectors(1, {.in = tiny.embed_tokens.data}),
                    "graph: decode_vectors: this engine takes ids and gives logits alone");
}

TEST_CASE("eager and graph decode layers of other families as the oracle does") {
  for (const ModelShape& shape : {ModelShape{48, 80, 2, 4, 2, 16, 61, false, false},
                                  ModelShape{48, 80, 2, 4, 2, 16, 61, false, true},
                                  with_other_steps({48, 80, 2, 4, 2, 16, 61, false, false}),
                                  with_other_steps({48, 80, 2, 4, 2, 16, 61})}) {
    ModelWeights w = random_model(shape);
    if (!shape.qkv_bias) w.config.rope = llama3_rope(1e4, 8, 64);
    const std::vector<int32_t> ids = random_ids(60, shape.vocab);
    Oracle oracle(w, 1);
    const auto truth = truth_of(oracle, ids);
    INFO(unlike_qwen3(shape));
    const auto exact = make_eager(w, {.fp32 = true, .max_context = 64});
    CHECK(compare_all(*exact, ids, truth, 0.05f).worst() < 1e-5);
    require_hidden_close(*exact, oracle);
    require_vectors_agree(*exact, w, {1e-4, 1e-4, 0});
    for (const Lane lane : {kCpu, kGraphOnCpu}) {
      EagerOptions options = options_for(lane);
      options.max_context = 64;
      const Comparison c = compare_all(*make_eager(w, options), ids, truth, 0.05f);
      INFO(lane.name() << ", worst " << c.worst());
      CHECK((c.finite() && c.worst() < 0.1));
    }
    CHECK_THAT(error_line([&] { make_eager(w, {.compiled = true, .max_context = 64}); }),
               ContainsText("compile_step.py has no code for layers unlike Qwen3's (" +
                            unlike_qwen3(shape) + ")"));
  }
}

// A model whose layer adds nothing, whose logits are the values after the final norm, and whose keys
// are the first values after the input norm.
ModelWeights norm_of_embedding() {
  ModelWeights w = random_model(with_other_steps({48, 80, 1, 4, 2, 16, 48}), {.tied = false});
  auto zeros = std::make_shared<std::vector<Bf16>>(size_t{80 * 48});
  auto identity = std::make_shared<std::vector<Bf16>>(size_t{48 * 48});
  for (size_t i = 0; i < 48; ++i) (*identity)[i * 49] = to_bf16(1);
  w.layers[0].o_proj.data = w.layers[0].down_proj.data = zeros->data();
  w.lm_head.data = w.layers[0].k_proj.data = identity->data();
  w.owner = std::make_shared<std::vector<std::shared_ptr<const void>>>(
      std::vector<std::shared_ptr<const void>>{w.owner, zeros, identity});
  return w;
}

// RMSNorm with an offset of 1, rounded once.
std::vector<float> normed(std::span<const float> x, const Matrix& weight, double eps) {
  double squares = 0;
  for (const float one : x) squares += double{one} * one;
  std::vector<float> out;
  for (size_t i = 0; i < x.size(); ++i) {
    const double scaled = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    out.push_back(round_to_bf16(static_cast<float>(scaled * (1.0 + to_float(weight.data[i])))));
  }
  return out;
}

TEST_CASE("a multiplier is rounded before its product, a norm with an offset once") {
  const ModelWeights w = norm_of_embedding();
  const std::vector<int32_t> ids = random_ids(12, 48);
  for (const Lane lane : {kCpu, kGraphOnCpu}) {
    INFO(lane.name());
    EagerOptions options = options_for(lane);
    options.max_context = 4;
    const auto e = make_eager(w, options);
    for (const int32_t id : ids) {
      std::vector<float> rows, logits(48), keys;
      for (const Bf16 x : w.embed_tokens.row(id))
        rows.push_back(round_to_bf16(to_float(x) * 1.703125f));  // 1.7 as bf16
      const double eps = w.config.rms_norm_eps;
      const std::vector<float> x = normed(rows, w.layers[0].input_layernorm, eps);
      for (const size_t head : {0, 16}) {
        const auto key = normed(std::span(x).subspan(head, 16), w.layers[0].k_norm, eps);
        keys.insert(keys.end(), key.begin(), key.end());
      }
      e->reset();
      e->set_pending(id);
      e->decode(1, nullptr, logits.data());
      CHECK(e->hidden(0).value() == rows);
      CHECK(logits == normed(rows, w.final_norm, eps));
      std::vector<float> row = e->kv_row(0, 0).value();  // RoPE turns by 0
      row.resize(32);
      CHECK(row == keys);
    }
  }
}

TEST_CASE("graph's steps, run op by op, equal the committed references") {
  check_all_tokens(kGraphOnCpu);
}

TEST_CASE("graph's steps, run op by op, meet the engine contract") { check_contract(kGraphOnCpu); }

TEST_CASE("a context is cut into buckets that double") {
  CHECK(kv_buckets(100) == std::vector{100});
  CHECK(kv_buckets(256) == std::vector{256});
  CHECK(kv_buckets(1500) == std::vector{256, 512, 1024, 1500});
}

TEST_CASE("a weight that a file holds misaligned gives the same tokens") {
  const ModelWeights tiny = load("tiny");
  // The embedding lies 2 bytes off an aligned address.
  auto storage = std::make_shared<std::vector<Bf16>>(tiny.embed_tokens.size() + 16);
  Bf16* shifted = storage->data();
  while (reinterpret_cast<uintptr_t>(shifted) % 16 != 2) ++shifted;
  std::copy_n(tiny.embed_tokens.data, tiny.embed_tokens.size(), shifted);
  ModelWeights moved = tiny;
  moved.embed_tokens.data = shifted;
  moved.lm_head.data = shifted;
  const auto a = make_eager(tiny), b = make_eager(moved);
  const std::vector<int32_t> prompt = {65, 66, 67, 32};
  a->prefill(prompt);
  b->prefill(prompt);
  CHECK(a->decode(24) == b->decode(24));
}

TEST_CASE("the truth takes forced steps in one pass, with the answers of single steps") {
  const ModelWeights tiny = load("tiny");
  EagerOptions options;
  options.max_context = 64;
  options.fp32 = true;
  const auto one_pass = make_eager(tiny, options), stepped = make_eager(tiny, options);
  const std::vector<int32_t> prompt = {65, 66, 67}, inputs = {0, 68, 69, 70, 71};
  const auto vocab = static_cast<size_t>(tiny.config.shape.vocab);
  std::vector<float> together(5 * vocab), apart(5 * vocab);
  one_pass->prefill(prompt);
  stepped->prefill(prompt);
  const std::vector<int32_t> ids = one_pass->decode(5, inputs.data(), together.data());
  for (size_t t = 0; t < 5; ++t) {
    if (t > 0) stepped->set_pending(inputs[t]);
    CHECK(stepped->decode(1, nullptr, apart.data() + t * vocab).front() == ids[t]);
  }
  for (size_t i = 0; i < apart.size(); ++i) CHECK(together[i] == Approx(apart[i]).margin(1e-3));
  CHECK(one_pass->position() == stepped->position());
  const auto a = one_pass->hidden(3), b = stepped->hidden(3);
  REQUIRE((a && b));
  REQUIRE(a->size() == b->size());
  for (size_t i = 0; i < a->size(); ++i) CHECK((*a)[i] == Approx((*b)[i]).margin(1e-3));
}

TEST_CASE("eager's memory is stated before it is taken") {
  ModelConfig config;
  config.shape = kQwen3_0_6B;
  config.tie_word_embeddings = true;
  EagerOptions options;
  options.max_context = 4096;
  const int64_t kv = 4096 * kQwen3_0_6B.kv_bytes_per_position();
  CHECK(eager_bytes(config, options) == kv);  // on a CPU the weights stay the caller's memory
  options.cuda = true;
  // Scores of 512 rows by 16 heads, and K and V of 8 heads repeated for 16.
  const int64_t scratch = 8LL * 512 * 16 * 4096 + 4096LL * 2 * 16 * 128 * 2;
  CHECK(eager_bytes(config, options) == 2 * 596'049'920LL + scratch + kv);
  options.graph = true;  // of 256, 512, 1,024, 2,048 and 4,096 rows
  CHECK(eager_bytes(config, options) == 2 * 596'049'920LL + scratch + kv + 5 * 100'000'000LL);
  options.graph = false;
  options.head_fp32 = true;
  CHECK(eager_bytes(config, options) == 2 * 596'049'920LL + scratch + 4LL * 151'936 * 1024 + kv);
  options.max_context = 64;  // fewer rows than a prefill takes at a time
  CHECK(eager_bytes(config, options) == 2 * 596'049'920LL + 8LL * 64 * 16 * 64 +
                                            64LL * 2 * 16 * 128 * 2 + 4LL * 151'936 * 1024 +
                                            64 * kQwen3_0_6B.kv_bytes_per_position());
  options = {};
  options.fp32 = true;
  CHECK(eager_bytes(config, options) == 4LL * 151'936 * 1024 + 2 * kv);
}

TEST_CASE("the pinned settings are in force and are reported") {
  const std::string settings = eager_settings();
  CAPTURE(settings);
  for (const char* part : {"allow_tf32=0", "cudnn_allow_tf32=0",
                           "allow_bf16_reduced_precision_reduction=0", "deterministic_algorithms=1",
                           "CUBLAS_WORKSPACE_CONFIG=:", "ALLOC_CONF=", "attention=eager"}) {
    CHECK(settings.find(part) != std::string::npos);
  }
}

// Extracts "cpu_threads=2" from the settings.
std::string cpu_threads() {
  const std::string settings = eager_settings();
  return settings.substr(settings.find("cpu_threads="));
}

TEST_CASE("a number of CPU threads holds as long as an engine that asked for it") {
  const auto make = [weights = load("tiny")](int threads) {
    EagerOptions options;
    options.max_context = 16;
    options.threads = threads;
    return make_eager(weights, options);
  };
  const std::string before = cpu_threads();
  REQUIRE(before != "cpu_threads=5");
  REQUIRE(before != "cpu_threads=7");
  auto five = make(5);
  CHECK(cpu_threads() == "cpu_threads=5");
  auto any = make(0);
  CHECK(cpu_threads() == "cpu_threads=5");
  auto seven = make(7);
  CHECK(cpu_threads() == "cpu_threads=7");
  five.reset();  // an older wish ends and changes nothing
  CHECK(cpu_threads() == "cpu_threads=7");
  seven.reset();
  CHECK(cpu_threads() == before);
}

TEST_CASE("libtorch's product is held against integers") {
  const TorchCheck check = check_torch(/*cuda=*/false, 0);
  CAPTURE(check.error);
  CHECK(check.ok);
  CHECK(check.error.empty());
  CHECK(check.got == check.wanted);
  CHECK(check.wanted != 0);
  if (torch_facts().cuda_available) return;
  const TorchCheck none = check_torch(/*cuda=*/true, 0);
  CHECK_FALSE(none.ok);
  CHECK_FALSE(none.error.empty());
  CHECK(none.error.find('\n') == std::string::npos);
}

TEST_CASE("CUDA without a usable GPU is refused, never replaced") {
  const TorchFacts facts = torch_facts();
  CHECK(facts.version.find('.') != std::string::npos);
  CHECK(facts.cuda_version.find('.') != std::string::npos);
  EagerOptions options;
  options.cuda = true;
  options.gpu = facts.cuda_available ? 99 : 0;
  CHECK_THAT(error_line(ErrorKind::kUnsupportedDevice, [&] { make_eager(load("tiny"), options); }),
             ContainsText("--device cpu"));
}
