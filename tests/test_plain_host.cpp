// The errors of the plain megakernel where it cannot run, which need no GPU.
#include <cuda_runtime_api.h>

#include "kernels/plain/megakernel.h"
#include "kernels/weight_layout.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

ModelWeights tiny() { return load_folder(data_dir() / "tiny", "tiny"); }

TEST_CASE("a layer's slab holds its tensors without overlap", "[plain]") {
  for (const ModelShape& s : {kQwen3_0_6B, kTiny}) {
    const LayerLayout at = layer_layout(s);
    REQUIRE(at.k_norm + static_cast<size_t>(s.head_dim) ==
            static_cast<size_t>(s.layer_parameters()));
    REQUIRE(at.stride >= static_cast<size_t>(s.layer_parameters()));
    for (const size_t offset : {at.qkv, at.o, at.gate, at.up, at.down, at.stride}) {
      REQUIRE(offset % 8 == 0);  // 16-byte loads
    }
  }
}

TEST_CASE("a shape that is not compiled in is refused with every difference", "[plain]") {
  ModelWeights w = tiny();
  w.config.shape.hidden = 2048;
  w.config.shape.intermediate = 6144;
  try {
    make_plain(w);
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    INFO(text);
    REQUIRE(error.kind() == ErrorKind::kBadInput);
    REQUIRE(text.find("hidden_size found 2048 wanted 1024") != std::string::npos);
    REQUIRE(text.find("intermediate_size found 6144 wanted 3072") != std::string::npos);
    REQUIRE(text.find("head_dim") == std::string::npos);  // this dimension agrees
  }
}

TEST_CASE("weights that do not fit the config are refused by name", "[plain]") {
  ModelWeights w = tiny();
  w.layers[2].o_proj.cols -= 1;
  try {
    make_plain(w);
    FAIL("no error");
  } catch (const Error& error) {
    INFO(error.what());
    REQUIRE(error.kind() == ErrorKind::kBadInput);
    REQUIRE_THAT(error.what(), ContainsText("layers.2.self_attn.o_proj.weight is [128, 511]"));
  }
  w = tiny();
  w.layers.pop_back();
  REQUIRE_THROWS_AS(make_plain(w), Error);
}

TEST_CASE("without a GPU the engine says so and names the way out", "[plain]") {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) SKIP_TEST("there is a GPU");
  try {
    make_plain(tiny());
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    INFO(text);
    REQUIRE(error.kind() == ErrorKind::kUnsupportedDevice);
    REQUIRE(text.find("--device cpu") != std::string::npos);
  }
}

TEST_CASE("memory is told before it is taken", "[plain]") {
  const ModelConfig config{.shape = kQwen3_0_6B,
                           .rope_theta = 1e6,
                           .rope_theta_key = "",
                           .rms_norm_eps = 1e-6,
                           .tie_word_embeddings = true,
                           .max_positions = 40960};
  const int64_t at_1 = plain_device_bytes(config, {.max_context = 1});
  const int64_t at_1001 = plain_device_bytes(config, {.max_context = 1001});
  // Weights, and the partial results of 32 splits.
  REQUIRE(at_1 > 2 * kQwen3_0_6B.parameters(true) + 4 * 32 * kQwen3_0_6B.q_width());
  // 1,000 more positions take 1,000 more rows of the KV cache and of the rotary table.
  REQUIRE(at_1001 - at_1 == 1000 * (kQwen3_0_6B.kv_bytes_per_position() + 64 * 8));
}

TEST_CASE("the binary knows its architectures", "[plain]") {
  const std::string list = plain_architectures();
  INFO(list);
  REQUIRE_FALSE(list.empty());
  REQUIRE(list.find("real") == std::string::npos);
}

}  // namespace
}  // namespace mkbench
