#include "baselines/known_bugs.h"

#include <cmath>
#include <functional>
#include <sstream>

namespace mkbench {
namespace {

std::string number(double x) {
  std::ostringstream text;
  text << x;
  return text.str();
}
std::string more_or_less(double x) { return x > 0 ? "one more" : "one less"; }

// A kind of bug: its text for a value, the values to try, and whether the model can have it.
struct Kind {
  Bug bug;
  const char* name;
  std::function<std::string(double value)> text;
  std::vector<double> values = {0};
  bool possible = true;
  bool in_layers = false;  // also tried in each layer alone
};

std::function<std::string(double)> say(std::string text) {
  return [text = std::move(text)](double) { return text; };
}

std::vector<double> others(std::vector<double> values, double own) {
  std::erase_if(values, [own](double v) { return std::abs(v - own) <= 1e-9 * std::abs(own); });
  return values;
}

// Windows that hide rows from the last of `rows` rows.
std::vector<double> windows(int rows) {
  std::vector<double> below;
  for (int w = 8; w < rows; w *= 2) below.push_back(w);
  return below;
}

std::vector<Kind> kinds(const ModelConfig& config, int rows) {
  const ModelShape& s = config.shape;
  const std::string half = std::to_string(s.head_dim / 2);
  const double scale = std::sqrt(static_cast<double>(s.head_dim));
  const bool qk_norm = s.qk_norm, bias = s.qkv_bias, tied = config.tie_word_embeddings;
  const bool groups = s.gqa_group() > 1 && s.kv_heads > 1;
  const bool silu = s.activation == Activation::kSilu;
  std::vector<double> square;  // projections whose transpose fits
  if (s.q_width() == s.hidden) square = {0, 3};
  if (s.kv_width() == s.hidden) square.insert(square.end(), {1, 2});
  return {
      {Bug::kRopeInterleaved, "rope_interleaved",
       say("RoPE pairs (2i, 2i + 1) instead of (i, i + " + half + ")")},
      {Bug::kRotateSign, "rotate_sign",
       say("RoPE turns backwards: the sign of sin, or sin and cos changed places")},
      {Bug::kRopeTheta, "rope_theta", [](double v) { return "rope_theta " + number(v); },
       others({1e4, 1e5, 5e5, 1e6}, config.rope.theta)},
      {Bug::kRopeUnscaled,
       "rope_unscaled",
       say("the RoPE scaling of the config is left out"),
       {0},
       config.rope.scaling != RopeScaling::kNone},
      {Bug::kRopeScalingSwapped,
       "rope_scaling_swapped",
       say("llama3's RoPE scaling divides the high frequencies and leaves the low ones"),
       {0},
       config.rope.scaling == RopeScaling::kLlama3},
      {Bug::kRopeMissing, "rope_missing", say("no RoPE")},
      {Bug::kRopeOfQueries, "rope_of_queries", say("RoPE of q alone; k is not rotated")},
      {Bug::kRopeOfKeys, "rope_of_keys", say("RoPE of k alone; q is not rotated")},
      {Bug::kRopeOfValues, "rope_of_values", say("RoPE of v too")},
      {Bug::kRopePairsShifted, "rope_pairs_shifted",
       say("RoPE pairs (i, i + " + half + " + 1) instead of (i, i + " + half + ")")},
      {Bug::kRopeExponent,
       "rope_exponent",
       [](double v) {
         return "RoPE frequencies theta^(-" + std::string(v < 1 ? "" : "4") + "i / head_dim)";
       },
       {0.5, 2}},
      {Bug::kRopeHalf,
       "rope_half",
       say("RoPE of the first half of each head alone"),
       {0},
       s.head_dim % 4 == 0},
      {Bug::kQueryPosition,
       "query_position",
       [](double v) {
         return "the position of q is " + more_or_less(v) + " than that of its own k";
       },
       {1, -1}},
      {Bug::kDecodePositions,
       "decode_positions",
       [](double v) {
         return "positions of decoded rows are " + more_or_less(v) +
                " than they follow the prompt's";
       },
       {1, -1}},
      {Bug::kDecodeRestarts, "decode_restarts", say("decoded rows count their positions from 0")},
      {Bug::kCallPositions, "call_positions",
       say("all steps of a decode() call have the position of its first")},
      {Bug::kSkipQNorm, "skip_q_norm", say("no q_norm"), {0}, qk_norm, true},
      {Bug::kSkipKNorm, "skip_k_norm", say("no k_norm"), {0}, qk_norm, true},
      {Bug::kSkipQkNorm, "skip_qk_norm", say("neither q_norm nor k_norm"), {0}, qk_norm},
      {Bug::kNormAfterRope, "norm_after_rope", say("q_norm and k_norm after RoPE"), {0}, qk_norm},
      {Bug::kQkNormsSwapped,
       "qk_norms_swapped",
       say("q_norm's weights for k and k_norm's for q"),
       {0},
       qk_norm},
      {Bug::kQkNormWhole,
       "qk_norm_whole",
       say("q_norm and k_norm over all heads at once instead of each head"),
       {0},
       qk_norm},
      {Bug::kValueNormed, "value_normed", say("k_norm of v too"), {0}, qk_norm},
      {Bug::kEps, "eps", [](double v) { return "rms_norm_eps " + number(v); },
       others({1e-5, 1e-6, 0, 1e-8, 1e-12}, config.rms_norm_eps)},
      {Bug::kNormPlus, "norm_plus_one", say("1 is added to the weights of all norms"), {1}},
      {Bug::kNormMean, "layer_norm", say("LayerNorm, which subtracts the mean, for RMSNorm")},
      {Bug::kNormSum, "norm_sum", say("norms divide by the root of the sum, not of the mean")},
      {Bug::kNormUnweighted, "norms_unweighted", say("norms without their weights")},
      {Bug::kNormsSwapped, "norms_swapped",
       say("the weights of the norms before attention and before the MLP changed places")},
      {Bug::kInputNormMissing, "skip_input_norm", say("no norm before attention"), {0}, true, true},
      {Bug::kPostNormMissing, "skip_post_norm", say("no norm before the MLP"), {0}, true, true},
      {Bug::kFinalNormMissing, "skip_final_norm", say("no norm before the LM head")},
      {Bug::kFinalNormUnweighted, "final_norm_dropped", say("the final norm without its weights")},
      {Bug::kScoreFactor, "scale_missing", say("scores without 1 / sqrt(head_dim)"), {scale}},
      {Bug::kScoreFactor, "scale_twice", say("scores times 1 / sqrt(head_dim) twice"), {1 / scale}},
      {Bug::kScoreFactor, "softmax_base_2", say("softmax with 2^x for e^x"), {std::log(2.0)}},
      {Bug::kSplitMaxima,
       "split_maxima",
       [](double v) {
         return "rows are split in " + number(v) + " (row % " + number(v) +
                "), each less its own maximum, and merged without scaling";
       },
       {2, 4, 8, 16, 32}},
      {Bug::kSoftmaxSum, "softmax_sum", say("softmax without the division by its sum")},
      {Bug::kScoreFactor,
       "scale_hidden",
       say("scores times 1 / sqrt(hidden)"),
       {scale / std::sqrt(static_cast<double>(s.hidden))},
       s.hidden != s.head_dim},
      {Bug::kGqaMap,
       "gqa_map",
       say("query head h reads kv head h % " + std::to_string(s.kv_heads)),
       {0},
       groups},
      {Bug::kGqaMapOfValues,
       "gqa_map_of_values",
       say("query head h reads V of kv head h % " + std::to_string(s.kv_heads) +
           ", and K of the right one"),
       {0},
       groups},
      {Bug::kGqaFirst, "gqa_first", say("all query heads read kv head 0"), {0}, s.kv_heads > 1},
      {Bug::kNextValueHead,
       "next_value_head",
       [](double v) { return v == 0 ? "kv head 0 reads V of head 1" : "V of the next kv head"; },
       {0, 1},
       s.kv_heads > 1},
      {Bug::kNewestUnseen, "cache_length", say("attention leaves out the newest KV row")},
      {Bug::kNewestUnseenInDecode, "cache_length_decode",
       say("attention leaves out the newest KV row in decoded steps")},
      {Bug::kNewestZero, "newest_row_late",
       say("the newest KV row is read before it is written, as zeros")},
      {Bug::kZeroRowSeen, "zero_row_seen",
       say("attention reads one KV row too many, which holds zeros")},
      {Bug::kRowBefore, "kv_row_before",
       say("KV rows are written one position too early, and the last one that is read holds "
           "zeros")},
      {Bug::kNextSeen, "next_row_seen", say("rows of the prompt see the row behind them")},
      {Bug::kNoMask, "no_causal_mask", say("rows of the prompt see the whole prompt")},
      {Bug::kFirstUnseen, "first_row_unseen", say("attention leaves out KV row 0")},
      {Bug::kPromptForgotten, "prompt_forgotten", say("decoded rows do not see the prompt's")},
      {Bug::kWindow, "window",
       [](double v) { return "attention sees the last " + number(v) + " rows alone"; },
       windows(rows)},
      {Bug::kEveryNthUnseen, "every_nth_unseen",
       [](double v) { return "attention leaves out every row n * " + number(v) + " - 1"; },
       windows(rows)},
      {Bug::kKeysLate, "keys_late", say("K of the row before")},
      {Bug::kValuesLate, "values_late", say("V of the row before")},
      {Bug::kHeadsUnmerged, "heads_transposed",
       say("o_proj reads heads as [head_dim, heads] instead of [heads, head_dim]")},
      {Bug::kKvSwapped, "kv_swapped", say("the weights of K and V changed places")},
      {Bug::kTransposed, "transposed",
       [](double v) {
         return std::string("qkvo").substr(static_cast<size_t>(v), 1) + "_proj transposed";
       },
       square},
      {Bug::kBiasDropped,
       "bias_dropped",
       [](double v) {
         constexpr const char* kOf[] = {"q, k and v", "q", "k", "v"};
         return std::string("no bias of ") + kOf[static_cast<size_t>(v)];
       },
       {0, 1, 2, 3},
       bias},
      {Bug::kBiasAfterRope,
       "bias_after_rope",
       say("the biases of q and k are added after RoPE"),
       {0},
       bias},
      {Bug::kSwapGateUp, "swap_gate_up", say("gate and up changed places"), {0}, true, true},
      {Bug::kUpMissing, "up_missing", say("the gate is not multiplied by up")},
      {Bug::kProductActivated, "product_activated",
       say("the activation of gate * up for the activated gate times up")},
      {Bug::kGelu, "gelu", say("GELU for SiLU"), {0}, silu},
      {Bug::kGeluTanh, "gelu_tanh", say("GELU's tanh form for SiLU"), {0}, silu},
      {Bug::kRelu, "relu", say("ReLU for the activation")},
      {Bug::kSigmoid, "sigmoid", say("sigmoid(x) for x * sigmoid(x)"), {0}, silu},
      {Bug::kNoActivation, "no_activation", say("the gate without its activation")},
      {Bug::kAttentionResidualMissing,
       "attention_residual_dropped",
       say("attention's residual is dropped"),
       {0},
       true,
       true},
      {Bug::kMlpResidualMissing,
       "mlp_residual_dropped",
       say("the MLP's residual is dropped"),
       {0},
       true,
       true},
      {Bug::kResidualTwice, "residual_twice", say("attention's residual is added twice")},
      {Bug::kParallelMlp, "parallel_mlp", say("the MLP reads the residual from before attention")},
      {Bug::kStaleResidual, "stale_residual",
       say("the MLP's output is added to the residual from before attention")},
      {Bug::kResidualNormed, "residual_normed", say("residuals are taken behind the norm")},
      {Bug::kAttentionMissing, "attention_missing", say("attention is left out"), {0}, true, true},
      {Bug::kMlpMissing, "mlp_missing", say("the MLP is left out"), {0}, true, true},
      {Bug::kFirstLayerAlone, "first_layer_alone", say("every layer has the weights of layer 0")},
      {Bug::kEmbeddingFactor,
       "embedding_scaled",
       say("embeddings times sqrt(hidden)"),
       {std::sqrt(static_cast<double>(s.hidden))}},
      {Bug::kEmbeddingFactor,
       "embedding_unscaled",
       say("embeddings without the model's multiplier"),
       {1 / s.embedding_multiplier},
       s.embedding_multiplier != 1},
      {Bug::kEmbeddingOfHead,
       "embedding_of_head",
       say("embeddings are rows of the LM head"),
       {0},
       !tied},
      {Bug::kIdLate, "id_late", say("decoded steps take the id before theirs")},
      {Bug::kHeadOfEmbedding,
       "head_of_embedding",
       say("the embedding for the LM head of a model that is not tied"),
       {0},
       !tied},
      {Bug::kHeadShifted,
       "head_shifted",
       [](double v) { return "logits stand at the id " + more_or_less(v) + " than theirs"; },
       {1, -1}},
      {Bug::kHeadTransposed, "head_transposed", say("the LM head is read as [hidden, vocab]")},
  };
}

// Bugs of whole layers, which have no form for all layers at once.
std::vector<Kind> kinds_of_layers() {
  return {{Bug::kLayerSkipped, "layer_skipped", say("left out")},
          {Bug::kLayerTwice, "layer_twice", say("run twice")},
          {Bug::kLayerBefore, "layer_before", say("with the weights of the layer before")}};
}

}  // namespace

std::vector<KnownBug> known_bugs(const ModelConfig& config, int rows) {
  std::vector<KnownBug> bugs;
  const std::vector<Kind> all = kinds(config, rows);
  for (const Kind& kind : all) {
    if (!kind.possible) continue;
    for (const double value : kind.values)
      bugs.push_back({{kind.bug, value}, kind.name, kind.text(value)});
  }
  const auto in_layer = [&](const Kind& kind, int layer) {
    bugs.push_back({{kind.bug, kind.values.front(), layer},
                    kind.name,
                    "layer " + std::to_string(layer) + ": " + kind.text(kind.values.front())});
  };
  for (int layer = 0; layer < config.shape.layers; ++layer) {
    for (const Kind& kind : kinds_of_layers()) {
      if (layer > 0 || kind.bug != Bug::kLayerBefore) in_layer(kind, layer);
    }
    for (const Kind& kind : all) {
      if (kind.possible && kind.in_layers) in_layer(kind, layer);
    }
  }
  return bugs;
}

}  // namespace mkbench
