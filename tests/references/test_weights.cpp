// The list of a model's tensors, and the hashes over it.
#include <cstring>

#include "references/base/error.h"
#include "references/base/sha256.h"
#include "references/model/weights.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

ModelConfig config_of(const ModelShape& shape, bool tied) {
  ModelConfig config;
  config.shape = shape;
  config.tie_word_embeddings = tied;
  return config;
}

// The micro model in memory: tensor i filled with values that no other tensor has.
struct InMemory {
  std::vector<std::vector<Bf16>> storage;
  ModelWeights weights;

  explicit InMemory(bool tied) {
    weights.config = config_of(kMicro, tied);
    weights.layers.resize(static_cast<size_t>(kMicro.layers));
    for (const NamedTensor& t : tensor_table(weights.config)) {
      storage.emplace_back(static_cast<size_t>(t.rows) * static_cast<size_t>(t.cols),
                           to_bf16(static_cast<float>(storage.size() + 1)));
      tensor_of(weights, t) = {storage.back().data(), t.rows, t.cols};
    }
  }
  // The hash by its definition, over the bytes of all tensors one after the other.
  std::string hash_of_first(size_t tensors) const {
    std::string bytes;
    for (size_t i = 0; i < tensors; ++i)
      bytes.append(reinterpret_cast<const char*>(storage[i].data()), 2 * storage[i].size());
    return sha256_hex(bytes.data(), bytes.size());
  }
};

}  // namespace

TEST_CASE("SHA-256 of the standard's examples") {
  CHECK(sha256_hex("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) hash.update(std::string(1000, 'a').data(), 1000);
  const std::string million_a = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  CHECK(hash.hex() == million_a);

  const TemporaryFolder folder;
  write_file(folder.path() / "a", std::string(1'000'000, 'a'));  // not a multiple of the read size
  CHECK(sha256_file(folder.path() / "a") == million_a);
  CHECK_THROWS_AS(sha256_file(folder.path() / "b"), Error);
  CHECK_THROWS_AS(sha256_file(folder.path()), Error);
}

TEST_CASE("the table has the published model's 311 tensors and all its parameters") {
  const std::vector<NamedTensor> table = tensor_table(config_of(kQwen3_0_6B, true));
  REQUIRE(table.size() == 311);
  int64_t parameters = 0;
  for (const NamedTensor& t : table) parameters += int64_t{t.rows} * t.cols;
  CHECK(parameters == kQwen3_0_6B.parameters(false));
  const char* names[] = {"model.embed_tokens.weight",
                         "model.layers.0.input_layernorm.weight",
                         "model.layers.0.post_attention_layernorm.weight",
                         "model.layers.0.self_attn.q_proj.weight",
                         "model.layers.0.self_attn.k_proj.weight",
                         "model.layers.0.self_attn.v_proj.weight",
                         "model.layers.0.self_attn.o_proj.weight",
                         "model.layers.0.self_attn.q_norm.weight",
                         "model.layers.0.self_attn.k_norm.weight",
                         "model.layers.0.mlp.gate_proj.weight",
                         "model.layers.0.mlp.up_proj.weight",
                         "model.layers.0.mlp.down_proj.weight",
                         "model.layers.1.input_layernorm.weight"};
  for (size_t i = 0; i < std::size(names); ++i) CHECK(table[i].name == names[i]);
  CHECK(table[309].name == "model.norm.weight");
  CHECK(table[310].name == "lm_head.weight");
  CHECK((table[6].rows == 1024 && table[6].cols == 2048));
  CHECK((table[7].is_vector && table[7].cols == 128));
  CHECK_FALSE(table[0].is_vector);
}

TEST_CASE("each entry of the table leads to a matrix of its own") {
  InMemory model(false);
  const std::vector<NamedTensor> table = tensor_table(model.weights.config);
  const ModelWeights& weights = model.weights;
  for (size_t i = 0; i < table.size(); ++i)
    CHECK(tensor_of(weights, table[i]).data == model.storage[i].data());
  CHECK(weights.layers[1].down_proj.data == model.storage[1 + 2 * 11 - 1].data());
  CHECK(weights.layers[0].post_attention_layernorm.data == model.storage[2].data());
}

TEST_CASE("the hash runs over the table, the head only when it is untied") {
  InMemory untied(false);
  CHECK(hash_weights(untied.weights) == untied.hash_of_first(25));
  InMemory tied(true);
  CHECK(hash_weights(tied.weights) == tied.hash_of_first(24));
  // Two tensors of one shape swap names, which no check of shapes can see.
  std::swap(tied.weights.layers[0].k_proj, tied.weights.layers[0].v_proj);
  CHECK(hash_weights(tied.weights) != tied.hash_of_first(24));
}

TEST_CASE("an incomplete model is not hashed") {
  InMemory model(true);
  model.weights.layers[1].up_proj.data = nullptr;
  CHECK_THROWS_AS(hash_weights(model.weights), Error);
}

}  // namespace mkbench::testing
