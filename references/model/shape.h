// The dimensions and layers of a model, and a few shapes: Qwen3-0.6B's and those of the committed
// checkpoints. Every model that has a name has a row in model_row.cpp.
#pragma once

#include <cstdint>

namespace mkbench {

// The gate's activation: SiLU, or GELU in its tanh approximation.
enum class Activation { kSilu, kGeluTanh };

// What fixes which tensors there are, their shapes, and what a layer computes with them. Linear
// weights are [out, in], row-major, bf16.
struct ModelShape {
  int hidden;        // residual stream width
  int intermediate;  // SwiGLU width
  int layers;
  int heads;     // query heads
  int kv_heads;  // key/value heads; query head h reads kv head h / gqa_group()
  int head_dim;  // even
  int vocab;
  bool qk_norm = true;    // an RMSNorm over each query and key head, before RoPE
  bool qkv_bias = false;  // a vector is added to each of q, k and v
  // Added to the weights of all norms, in fp32. Where it is not 0, a bf16 model rounds once, after
  // the product with the sum; where it is 0, the normalised values also before the product.
  int norm_offset = 0;
  Activation activation = Activation::kSilu;
  // Factor on embedding rows, rounded to the model's dtype; input vectors are not scaled.
  double embedding_multiplier = 1;

  constexpr int q_width() const { return heads * head_dim; }
  constexpr int kv_width() const { return kv_heads * head_dim; }
  constexpr int qkv_width() const { return q_width() + 2 * kv_width(); }
  constexpr int gqa_group() const { return heads / kv_heads; }
  // Parameters of one layer: q, k, v, o, gate, up, down, two RMSNorms, QK-norms, biases.
  constexpr int64_t layer_parameters() const {
    return int64_t{hidden} * (qkv_width() + q_width()) + 3LL * hidden * intermediate +
           2LL * hidden + (qk_norm ? 2LL * head_dim : 0) + (qkv_bias ? qkv_width() : 0);
  }
  constexpr int64_t embedding_parameters() const { return int64_t{vocab} * hidden; }
  constexpr int64_t parameters(bool tied) const {
    return layers * layer_parameters() + (tied ? 1 : 2) * embedding_parameters() + hidden;
  }
  // Bytes of K and V that one position adds over all layers, in bf16.
  constexpr int64_t kv_bytes_per_position() const { return 2LL * 2 * layers * kv_width(); }
  // Bytes one decode step must read at context length `depth` (KV rows before the step), bf16.
  constexpr int64_t bytes_per_step(double depth) const {
    return 2 * (layers * layer_parameters() + hidden + embedding_parameters()) +
           static_cast<int64_t>(static_cast<double>(kv_bytes_per_position()) * depth);
  }
  // The only layers that ring and `compiled` have code for.
  constexpr bool has_qwen3_layers() const { return qk_norm && !qkv_bias && has_llama_steps(); }
  // The steps of Llama, Qwen2 and Qwen3, for which all kernels are written.
  constexpr bool has_llama_steps() const {
    return norm_offset == 0 && activation == Activation::kSilu && embedding_multiplier == 1;
  }
  // False for an outline (references/outline.h): only vocabulary, width and layers are known.
  constexpr bool is_whole() const { return heads > 0; }
  // Equal in every dimension that a kernel compiles in; layers and vocabulary are run-time values.
  constexpr bool same_layer_shape(const ModelShape& o) const {
    ModelShape mine = *this;
    mine.layers = o.layers;
    mine.vocab = o.vocab;
    return mine == o;
  }
  constexpr bool operator==(const ModelShape&) const = default;
};

inline constexpr ModelShape kQwen3_0_6B{.hidden = 1024,
                                        .intermediate = 3072,
                                        .layers = 28,
                                        .heads = 16,
                                        .kv_heads = 8,
                                        .head_dim = 128,
                                        .vocab = 151936};
static_assert(kQwen3_0_6B.parameters(true) == 596'049'920);
static_assert(kQwen3_0_6B.kv_bytes_per_position() == 114'688);

// The committed tiny checkpoints: byte-level vocabulary (256 bytes, bos, eos, pad).
inline constexpr ModelShape kTiny{.hidden = 128,
                                  .intermediate = 384,
                                  .layers = 4,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .vocab = 259};
// Committed checkpoints of two other families, with heads of 64 and no QK-norm: tiny-llama, and
// tiny-qwen2, whose layers have biases of q, k and v.
inline constexpr ModelShape kTinyLlama{128, 384, 4, 4, 2, 64, kTiny.vocab, false};
inline constexpr ModelShape kTinyQwen2{128, 384, 4, 2, 1, 64, kTiny.vocab, false, true};

}  // namespace mkbench
