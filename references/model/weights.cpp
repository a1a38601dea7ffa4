#include "references/model/weights.h"

#include <iterator>

#include "references/base/error.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

// Rows or columns of a tensor.
using Extent = int (*)(const ModelShape&);
constexpr Extent kOne = [](const ModelShape&) { return 1; };
constexpr Extent kHidden = [](const ModelShape& s) { return s.hidden; };
constexpr Extent kIntermediate = [](const ModelShape& s) { return s.intermediate; };
constexpr Extent kQWidth = [](const ModelShape& s) { return s.q_width(); };
constexpr Extent kKvWidth = [](const ModelShape& s) { return s.kv_width(); };
constexpr Extent kHeadDim = [](const ModelShape& s) { return s.head_dim; };

struct LayerTensor {
  const char* name;  // the part after "model.layers.N."
  Matrix LayerWeights::*member;
  Extent rows, cols;
  bool ModelShape::*needs = nullptr;  // the model has the tensor if this is true; null: always
};
constexpr auto kQkNorm = &ModelShape::qk_norm, kBias = &ModelShape::qkv_bias;

// The order of LayerWeights; hashes and device layouts depend on it.
constexpr LayerTensor kLayerTensors[] = {
    {"input_layernorm.weight", &LayerWeights::input_layernorm, kOne, kHidden},
    {"post_attention_layernorm.weight", &LayerWeights::post_attention_layernorm, kOne, kHidden},
    {"self_attn.q_proj.weight", &LayerWeights::q_proj, kQWidth, kHidden},
    {"self_attn.k_proj.weight", &LayerWeights::k_proj, kKvWidth, kHidden},
    {"self_attn.v_proj.weight", &LayerWeights::v_proj, kKvWidth, kHidden},
    {"self_attn.o_proj.weight", &LayerWeights::o_proj, kHidden, kQWidth},
    {"self_attn.q_norm.weight", &LayerWeights::q_norm, kOne, kHeadDim, kQkNorm},
    {"self_attn.k_norm.weight", &LayerWeights::k_norm, kOne, kHeadDim, kQkNorm},
    {"mlp.gate_proj.weight", &LayerWeights::gate_proj, kIntermediate, kHidden},
    {"mlp.up_proj.weight", &LayerWeights::up_proj, kIntermediate, kHidden},
    {"mlp.down_proj.weight", &LayerWeights::down_proj, kHidden, kIntermediate},
    {"self_attn.q_proj.bias", &LayerWeights::q_bias, kOne, kQWidth, kBias},
    {"self_attn.k_proj.bias", &LayerWeights::k_bias, kOne, kKvWidth, kBias},
    {"self_attn.v_proj.bias", &LayerWeights::v_bias, kOne, kKvWidth, kBias},
};
static_assert(sizeof(LayerWeights) == std::size(kLayerTensors) * sizeof(Matrix),
              "every member of LayerWeights needs its row here");

NamedTensor global_tensor(const char* name, Matrix ModelWeights::*member, int rows, int cols,
                          bool is_vector) {
  NamedTensor t;
  t.name = name;
  t.global = member;
  t.rows = rows;
  t.cols = cols;
  t.is_vector = is_vector;
  return t;
}

}  // namespace

std::vector<NamedTensor> tensor_table(const ModelConfig& config) {
  const ModelShape& s = config.shape;
  std::vector<NamedTensor> table;
  table.reserve(3 + std::size(kLayerTensors) * static_cast<size_t>(s.layers));
  table.push_back(global_tensor("model.embed_tokens.weight", &ModelWeights::embed_tokens, s.vocab,
                                s.hidden, false));
  for (int layer = 0; layer < s.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const LayerTensor& entry : kLayerTensors) {
      if (entry.needs != nullptr && !(s.*entry.needs)) continue;
      NamedTensor t;
      t.name = prefix + entry.name;
      t.layer = layer;
      t.member = entry.member;
      t.rows = entry.rows(s);
      t.cols = entry.cols(s);
      t.is_vector = entry.rows == kOne;
      table.push_back(std::move(t));
    }
  }
  table.push_back(global_tensor("model.norm.weight", &ModelWeights::final_norm, 1, s.hidden, true));
  table.push_back(
      global_tensor("lm_head.weight", &ModelWeights::lm_head, s.vocab, s.hidden, false));
  return table;
}

const Matrix& tensor_of(const ModelWeights& w, const NamedTensor& t) {
  if (t.global != nullptr) return w.*t.global;
  return w.layers.at(static_cast<size_t>(t.layer)).*t.member;
}

Matrix& tensor_of(ModelWeights& w, const NamedTensor& t) {
  if (t.global != nullptr) return w.*t.global;
  return w.layers.at(static_cast<size_t>(t.layer)).*t.member;
}

void check_shapes(const ModelWeights& weights, const std::string& engine) {
  const size_t wanted = static_cast<size_t>(weights.config.shape.layers);
  if (weights.layers.size() != wanted) {
    throw Error(ErrorKind::kBadInput, engine + ": weights have " +
                                          std::to_string(weights.layers.size()) +
                                          " layers, config " + std::to_string(wanted));
  }
  for (const NamedTensor& t : tensor_table(weights.config)) {
    const Matrix& m = tensor_of(weights, t);
    if (m.data != nullptr && m.rows == t.rows && m.cols == t.cols) continue;
    throw Error(ErrorKind::kBadInput, engine + ": " + t.name + " is [" + std::to_string(m.rows) +
                                          ", " + std::to_string(m.cols) + "], wanted [" +
                                          std::to_string(t.rows) + ", " + std::to_string(t.cols) +
                                          "]");
  }
}

std::string hash_weights(const ModelWeights& weights) {
  Sha256 hash;
  for (const NamedTensor& t : tensor_table(weights.config)) {
    if (t.global == &ModelWeights::lm_head && weights.config.tie_word_embeddings) continue;
    const Matrix& m = tensor_of(weights, t);
    if (m.data == nullptr || m.rows != t.rows || m.cols != t.cols)
      throw Error(ErrorKind::kRuntime, t.name + ": held as [" + std::to_string(m.rows) + ", " +
                                           std::to_string(m.cols) + "], wanted [" +
                                           std::to_string(t.rows) + ", " + std::to_string(t.cols) +
                                           "]; weights cannot be hashed");
    hash.update(m.data, m.bytes());
  }
  return hash.hex();
}

}  // namespace mkbench
