// A model in host memory: config and bf16 tensors by role, from a file or a generator alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "references/base/bf16.h"
#include "references/model/architecture.h"

namespace mkbench {

struct Checkpoint;  // checkpoint_files.h

// A view of a row-major [rows, cols] bf16 matrix; vectors have rows == 1.
// `data` is aligned to 2 bytes at least; loaders copy tensors that a file holds misaligned.
struct Matrix {
  const Bf16* data = nullptr;
  int rows = 0;
  int cols = 0;
  size_t size() const { return static_cast<size_t>(rows) * static_cast<size_t>(cols); }
  size_t bytes() const { return 2 * size(); }
  std::span<const Bf16> row(int r) const {
    return {data + static_cast<size_t>(r) * static_cast<size_t>(cols), static_cast<size_t>(cols)};
  }
};

// One decoder layer, in the order in which tensors are numbered and hashed everywhere. A matrix that
// the model does not have (ModelShape::qk_norm, qkv_bias) is empty.
struct LayerWeights {
  Matrix input_layernorm;           // [1, hidden]
  Matrix post_attention_layernorm;  // [1, hidden]
  Matrix q_proj;                    // [heads * head_dim, hidden]
  Matrix k_proj;                    // [kv_heads * head_dim, hidden]
  Matrix v_proj;                    // [kv_heads * head_dim, hidden]
  Matrix o_proj;                    // [hidden, heads * head_dim]
  Matrix q_norm;                    // [1, head_dim]
  Matrix k_norm;                    // [1, head_dim]
  Matrix gate_proj;                 // [intermediate, hidden]
  Matrix up_proj;                   // [intermediate, hidden]
  Matrix down_proj;                 // [hidden, intermediate]
  Matrix q_bias;                    // [1, heads * head_dim]
  Matrix k_bias;                    // [1, kv_heads * head_dim]
  Matrix v_bias;                    // [1, kv_heads * head_dim]
};

// Views stay valid as long as any copy of `owner` lives; copying a ModelWeights is cheap.
struct ModelWeights {
  std::string name;    // as a report shows it: "tiny", "synthetic:short", a folder's name
  std::string lagset;  // set for the analytic checkpoint, else empty
  uint64_t salt = 0;   // that the analytic checkpoint was made with (make_synthetic())
  ModelConfig config;
  Matrix embed_tokens;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Matrix final_norm;  // [1, hidden]
  Matrix lm_head;     // [vocab, hidden]; the embedding's own data when tied
  // Which LM head the model has and by which rule, as a report shows it; empty: unknown.
  std::string head;
  // Hash of all tensors' bytes: embedding, layers in LayerWeights' order, final norm, untied head.
  std::string sha256;
  std::string model_type = "qwen3";  // of the checkpoint that the tensors were read from
  // Parts of the checkpoint that nothing here computes with, as a report shows them.
  std::vector<std::string> not_covered{};
  // What the loader decided about a folder that contradicts itself in something that no result depends
  // on, and what it left unread, as a report shows it.
  std::vector<std::string> notes{};
  // Which of the checkpoint's tensors were rounded to bf16, as a report shows it; empty: none.
  std::string rounded{};
  // The snapshot folder that holds these weights, absolute; empty: they are only in this process's
  // memory. Code that edits a tensor of a copy clears this field.
  std::filesystem::path folder;
  std::shared_ptr<const void> owner;
  // The open files; null: the tensors were not read from files. A model that only transformers computes
  // (outline.h) has no matrices here.
  std::shared_ptr<const Checkpoint> checkpoint{};
};

// A tensor of the model, by the name that checkpoints of every family but the talker give it
// (name_in() gives that family's).
// Loaders, generators, hashes and uploads all walk the list that tensor_table() gives.
struct NamedTensor {
  std::string name;
  Matrix ModelWeights::*global = nullptr;  // set for a tensor outside the layers only
  int layer = -1;                          // -1 for a tensor outside the layers
  Matrix LayerWeights::*member = nullptr;
  int rows = 0, cols = 0;
  bool is_vector = false;  // rank 1 in the file
};

// All tensors that the model has, in hash order: embedding, those of each layer, final norm, then
// lm_head (also when tied: a file may hold it).
std::vector<NamedTensor> tensor_table(const ModelConfig& config);

// sha256 (hex) over the bytes of all tensors in table order, the head only when untied.
std::string hash_weights(const ModelWeights& weights);

// Throws Error(kBadInput) with a text that begins with `engine` when the number of layers or a
// tensor's shape is not what the config says, because engines index by the config.
void check_shapes(const ModelWeights& weights, const std::string& engine);

// The matrix that `t` stands for inside `w`.
Matrix& tensor_of(ModelWeights& w, const NamedTensor& t);
const Matrix& tensor_of(const ModelWeights& w, const NamedTensor& t);

}  // namespace mkbench
