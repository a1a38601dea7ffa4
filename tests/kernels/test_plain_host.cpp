// The errors of the plain megakernel where it cannot run, which need no GPU.
#include <set>

#include "kernels/launch_checks.h"
#include "kernels/layer_shapes.h"
#include "kernels/plain/kernel.h"
#include "kernels/plain/megakernel.h"
#include "kernels/weight_layout.h"
#include "references/runnable.h"
#include "references/snapshot.h"
#include "tests/support/card_engine.h"

namespace mkbench {
namespace {

using namespace testing;

ModelWeights tiny() { return load_folder(data_dir() / "tiny", "tiny"); }

TEST_CASE("a layer's slab holds its tensors without overlap", "[plain]") {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& s = kLayerShapes.shapes[i];
    const LayerLayout at = layer_layout(s);
    const size_t head_norm = s.qk_norm ? static_cast<size_t>(s.head_dim) : 0;
    REQUIRE(at.k_norm == at.q_norm + head_norm);
    REQUIRE(at.bias == at.k_norm + head_norm);
    REQUIRE(at.bias + (s.qkv_bias ? static_cast<size_t>(s.qkv_width()) : 0) ==
            static_cast<size_t>(s.layer_parameters()));
    REQUIRE(at.stride >= static_cast<size_t>(s.layer_parameters()));
    for (const size_t offset : {at.qkv, at.o, at.gate, at.up, at.down, at.stride}) {
      REQUIRE(offset % 8 == 0);  // 16-byte loads
    }
  }
}

TEST_CASE("kCompiledShapes lists the shapes that are compiled in, and no other", "[plain]") {
  for (const CompiledShape& row : kCompiledShapes) {
    INFO(row.name);
    REQUIRE(plain::kernel_for(row.shape) != nullptr);
  }
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& shape = kLayerShapes.shapes[i];
    REQUIRE(nearest_compiled(shape).shape.same_layer_shape(shape));
  }
}

TEST_CASE("every published shape has a kernel, models of one layer shape the same", "[plain]") {
  std::set<const void*> kernels;
  for (const ShapeRow& row : kPublishedModels) {
    INFO(row.name);
    const void* kernel = plain::kernel_for(row.shape);
    REQUIRE(kernel != nullptr);
    kernels.insert(kernel);
    // The vector of the longest phase, and at most what a card of sm_86 or sm_120 grants a block.
    REQUIRE(plain::shared_bytes_for(row.shape) > 4 * row.shape.intermediate);
    REQUIRE(plain::shared_bytes_for(row.shape) <= 99 * 1024);
    ModelShape other = row.shape;
    other.layers = 2;
    other.vocab = 512;
    REQUIRE(plain::kernel_for(other) == kernel);
    other.heads /= 2;
    REQUIRE(plain::kernel_for(other) == nullptr);
    REQUIRE(plain::shared_bytes_for(other) == 0);
  }
  // The talker's layers are those of 0.6B.
  REQUIRE(kernels.size() == size_t{kShapeRows} + size_t{kLiveRows} - 1);
  for (const ModelShape& shape : {kTiny, kTinyLlama, kTinyQwen2}) {
    const void* kernel = plain::kernel_for(shape);
    REQUIRE(kernel != nullptr);
    REQUIRE(kernels.insert(kernel).second);
  }
}

TEST_CASE("a shape that is not compiled in is refused with those that are", "[plain]") {
  ModelWeights w = tiny();
  w.config.shape.hidden = 2048;
  w.config.shape.intermediate = 8193;
  const Thrown thrown = thrown_by([&] { make_plain(w); });
  INFO(thrown.message);
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  for (const char* words :
       {"no kernel for layers with hidden_size 2048, intermediate_size 8193",
        "qwen3-0.6b and qwen3-tts-talker (hidden_size 1024", "; tiny (hidden_size 128"})
    REQUIRE_THAT(thrown.message, ContainsText(words));
  for (const ShapeRow& row : kPublishedModels) REQUIRE_THAT(thrown.message, ContainsText(row.name));
  w = tiny();
  w.config.shape.qk_norm = false;
  REQUIRE_THAT(thrown_by([&] { make_plain(w); }).message,
               ContainsText("head_dim 128, no QK-norm; compiled in"));
  const auto refused_with = [](const std::string& part, const auto& change) {
    ModelWeights other = tiny();
    change(other.config.shape);
    REQUIRE_THAT(thrown_by([&] { make_plain(other); }).message,
                 ContainsText("head_dim 128, " + part + "; compiled in"));
  };
  refused_with("norm weights + 1", [](ModelShape& s) { s.norm_offset = 1; });
  refused_with("gelu_pytorch_tanh", [](ModelShape& s) { s.activation = Activation::kGeluTanh; });
  refused_with("embedding times 2", [](ModelShape& s) { s.embedding_multiplier = 2; });
}

TEST_CASE("weights that do not fit the config are refused by name", "[plain]") {
  ModelWeights w = tiny();
  w.layers[2].o_proj.cols -= 1;
  const Thrown thrown = thrown_by([&] { make_plain(w); });
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  REQUIRE_THAT(thrown.message, ContainsText("layers.2.self_attn.o_proj.weight is [128, 511]"));
  w = tiny();
  w.layers.pop_back();
  REQUIRE_THROWS_AS(make_plain(w), Error);
}

TEST_CASE("without a GPU the engine says so and names the way out", "[plain]") {
  if (!no_gpu()) SKIP_TEST("there is a GPU");
  const Thrown thrown = thrown_by([] { make_plain(tiny()); });
  REQUIRE(thrown.kind == ErrorKind::kUnsupportedDevice);
  REQUIRE_THAT(thrown.message, ContainsText("--device cpu"));
}

ModelConfig config_of(const ShapeRow& row) {
  return {.shape = row.shape,
          .rope = {.theta = row.rope_theta, .theta_key = ""},
          .rms_norm_eps = 1e-6,
          .tie_word_embeddings = row.tied,
          .max_positions = row.max_positions};
}

TEST_CASE("memory is told before it is taken", "[plain]") {
  const ModelConfig config = config_of(kShapeTable[0]);
  const int64_t at_1 = plain_device_bytes(config, {.max_context = 1});
  const int64_t at_1001 = plain_device_bytes(config, {.max_context = 1001});
  // Weights, and the partial results of 32 splits.
  REQUIRE(at_1 > 2 * kQwen3_0_6B.parameters(true) + 4 * 32 * kQwen3_0_6B.q_width());
  // 1,000 more positions take 1,000 more rows of the KV cache and of the rotary table.
  REQUIRE(at_1001 - at_1 == 1000 * (kQwen3_0_6B.kv_bytes_per_position() + 64 * 8));
  ModelConfig other = config;
  other.shape.head_dim = 80;
  REQUIRE_THAT(thrown_by([&] { plain_device_bytes(other, {.max_context = 1}); }).message,
               ContainsText("plain megakernel: no kernel for layers with"));
}

TEST_CASE("the memory of every published model is its parts", "[plain]") {
  for (const ShapeRow& row : kPublishedModels) {
    INFO(row.name);
    const ModelShape& s = row.shape;
    const int64_t bytes = plain_device_bytes(config_of(row), {.max_context = row.max_positions});
    const int64_t parts = 2 * s.parameters(row.tied) +
                          (s.kv_bytes_per_position() + 4LL * s.head_dim) * row.max_positions;
    const int64_t prefill =
        512LL * (4LL * (2 * s.hidden + s.qkv_width() + 2 * s.q_width() + s.intermediate) + 4);
    REQUIRE(bytes >= parts + prefill);
    REQUIRE(bytes <= parts + prefill + (2 << 20));  // what one step hands from phase to phase
  }
  // Qwen3-8B's weights take 16.4 GB, more than 31 bits count, and its longest context 6 GB.
  REQUIRE(plain_device_bytes(config_of(kShapeTable[3]), {.max_context = 40960}) > 22'400'000'000);
}

TEST_CASE("what would fit is told in positions", "[plain]") {
  REQUIRE(fitting_positions(1000, 1000, 10, 50) == 50);
  REQUIRE(fitting_positions(1001, 1000, 10, 50) == 49);
  REQUIRE(fitting_positions(1010, 1000, 10, 50) == 49);
  REQUIRE(fitting_positions(1011, 1000, 10, 50) == 48);
  REQUIRE(fitting_positions(9000, 1000, 10, 50) == 0);
  // Qwen3-8B on a card with 24 GB less what a context takes.
  const ShapeRow& row = kShapeTable[3];
  const int64_t a_position = row.shape.kv_bytes_per_position() + 4LL * row.shape.head_dim;
  const int64_t free = 20'000'000'000;
  const ModelConfig config = config_of(row);
  const auto bytes = [&](int64_t positions) {
    return plain_device_bytes(config, {.max_context = static_cast<int>(positions)});
  };
  const int64_t fit = fitting_positions(bytes(40960), free, a_position, 40960);
  INFO(fit << " positions");
  REQUIRE(bytes(fit) <= free);
  REQUIRE(bytes(fit + 1) > free);
}

TEST_CASE("the kernel's indices hold the longest contexts", "[plain]") {
  for (const ShapeRow& row : kPublishedModels) {
    INFO(row.name);
    // Pieces of 16 bytes of K, which the kernel counts in 31 bits.
    REQUIRE(int64_t{row.shape.layers} * row.shape.kv_width() / 8 * row.max_positions <= INT32_MAX);
    // The last weight of the last layer and of the LM head, in 64 bits.
    const LayerLayout at = layer_layout(row.shape);
    REQUIRE(static_cast<int64_t>(at.stride) >= row.shape.layer_parameters());
    REQUIRE(static_cast<int64_t>(at.stride * static_cast<size_t>(row.shape.layers)) >=
            row.shape.layers * row.shape.layer_parameters());
    // Prefill counts the elements of one matrix in 31 bits.
    REQUIRE(2LL * row.shape.intermediate * row.shape.hidden <= INT32_MAX);
  }
  ModelWeights w = tiny();
  w.config.max_positions = INT32_MAX;
  REQUIRE_THAT(thrown_by([&] { make_plain(w, {.max_context = INT32_MAX}); }).message,
               ContainsText("a KV cache of 2147483647 positions, wanted at most"));
}

TEST_CASE("the binary knows its architectures", "[plain]") {
  const std::string list = plain_architectures();
  INFO(list);
  REQUIRE_FALSE(list.empty());
  REQUIRE(list.find("real") == std::string::npos);
}

}  // namespace
}  // namespace mkbench
