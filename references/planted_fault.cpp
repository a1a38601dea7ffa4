#include "references/planted_fault.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "references/weight_edit.h"

namespace mkbench {
namespace {

// Moves dimension from(d) of every query and key head to dimension d: RoPE then pairs and turns
// other dimensions, and nothing else in the scores changes.
void move_head_dimensions(WeightEdit& e, const std::function<int(int)>& from) {
  const int head_dim = e.shape().head_dim;
  const auto in_head = [&](int r) { return r - r % head_dim + from(r % head_dim); };
  for (LayerWeights& layer : e.weights().layers) {
    e.move_rows(layer.q_proj, in_head);
    e.move_rows(layer.k_proj, in_head);
    e.move_columns(layer.q_norm, from);
    e.move_columns(layer.k_norm, from);
    e.move_columns(layer.q_bias, in_head);
    e.move_columns(layer.k_bias, in_head);
  }
}

// A layer in the middle, so that a fault has layers before and behind it.
size_t middle(const ModelWeights& w) { return w.layers.size() / 2; }

void norms_plus_one(WeightEdit& e) {
  const auto plus_one = [](float x) { return x + 1; };
  for (LayerWeights& layer : e.weights().layers) {
    for (Matrix* norm :
         {&layer.input_layernorm, &layer.post_attention_layernorm, &layer.q_norm, &layer.k_norm}) {
      e.each_value(*norm, plus_one);
    }
  }
  e.each_value(e.weights().final_norm, plus_one);
}

// Query head h reads kv head h % kv_heads instead of h / group: rows of q_proj and columns of
// o_proj change places together.
void deal_heads(WeightEdit& e) {
  const ModelShape& s = e.shape();
  const auto from = [&s](int i) {
    const int slot = i / s.head_dim;
    const int head = slot % s.gqa_group() * s.kv_heads + slot / s.gqa_group();
    return head * s.head_dim + i % s.head_dim;
  };
  for (LayerWeights& layer : e.weights().layers) {
    e.move_rows(layer.q_proj, from);
    e.move_columns(layer.q_bias, from);
    e.move_columns(layer.o_proj, from);
  }
}

void scale_scores(WeightEdit& e, float factor) {
  const auto scaled = [factor](float x) { return x * factor; };
  for (LayerWeights& layer : e.weights().layers) {
    if (e.shape().qk_norm) {
      e.each_value(layer.q_norm, scaled);
    } else {
      e.each_value(layer.q_proj, scaled);
      e.each_value(layer.q_bias, scaled);
    }
  }
}

// Sets the last eight columns of every down projection to 0, as if a sum stopped short of them.
void drop_tail(WeightEdit& e) {
  constexpr int kDropped = 8;
  for (LayerWeights& layer : e.weights().layers) {
    Matrix& m = layer.down_proj;
    std::vector<Bf16>& values = e.own(m);
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int>(i % static_cast<size_t>(m.cols)) >= m.cols - kDropped) values[i] = {0};
    }
  }
}

// Multiplies the largest entry of a matrix by 256, as a flipped bit of its exponent may.
void flip_bit(WeightEdit& e) {
  std::vector<Bf16>& values = e.own(e.weights().layers[middle(e.weights())].down_proj);
  const auto largest = std::max_element(values.begin(), values.end(), [](Bf16 a, Bf16 b) {
    return std::abs(to_float(a)) < std::abs(to_float(b));
  });
  *largest = to_bf16(256 * to_float(*largest));
}

void skip_layer(WeightEdit& e) {
  LayerWeights& layer = e.weights().layers[middle(e.weights())];
  for (Matrix* m : {&layer.o_proj, &layer.down_proj}) {
    e.each_value(*m, [](float) { return 0.0f; });
  }
}

void wrong_head(WeightEdit& e) {
  ModelWeights& w = e.weights();
  if (!w.config.tie_word_embeddings) {
    w.lm_head = w.embed_tokens;
    return;
  }
  // A tied model has no second matrix: row r of its new head is the embedding's row r - 1.
  e.untie();
  const int rows = w.lm_head.rows;
  e.move_rows(w.lm_head, [rows](int r) { return (r + rows - 1) % rows; });
}

void plant(WeightEdit& e, PlantedFault fault) {
  ModelWeights& w = e.weights();
  const int half = e.shape().head_dim / 2;
  const float score_scale = std::sqrt(static_cast<float>(e.shape().head_dim));
  switch (fault) {
    case PlantedFault::kRopeInterleaved:
      return move_head_dimensions(e,
                                  [half](int d) { return d < half ? 2 * d : 2 * (d - half) + 1; });
    case PlantedFault::kRotateSign:
      return move_head_dimensions(e, [half](int d) { return (d + half) % (2 * half); });
    case PlantedFault::kRopePairsShifted:
      return move_head_dimensions(
          e, [half](int d) { return d < half ? d : half + (d - half + 1) % half; });
    case PlantedFault::kNormPlusOne:
      return norms_plus_one(e);
    case PlantedFault::kFinalNormDropped:
      return e.each_value(w.final_norm, [](float) { return 1.0f; });
    case PlantedFault::kEps1e5:
      w.config.rms_norm_eps = 1e-5;
      return;
    case PlantedFault::kEpsZero:
      w.config.rms_norm_eps = 0;
      return;
    case PlantedFault::kGqaMap:
      return deal_heads(e);
    case PlantedFault::kNextValueHead: {
      const int head_dim = e.shape().head_dim, rows = e.shape().kv_width();
      const auto from = [=](int r) { return r < head_dim ? (r + head_dim) % rows : r; };
      for (LayerWeights& layer : w.layers) {
        e.move_rows(layer.v_proj, from);
        e.move_columns(layer.v_bias, from);
      }
      return;
    }
    case PlantedFault::kScaleMissing:
      return scale_scores(e, score_scale);
    case PlantedFault::kScaleTwice:
      return scale_scores(e, 1 / score_scale);
    case PlantedFault::kLayerSkipped:
      return skip_layer(e);
    case PlantedFault::kLayerTwice:
      w.layers[middle(w)] = w.layers[middle(w) - 1];
      return;
    case PlantedFault::kTensorZero:
      return e.each_value(w.layers[middle(w)].v_proj, [](float) { return 0.0f; });
    case PlantedFault::kTailDropped:
      return drop_tail(e);
    case PlantedFault::kWeightBitFlip:
      return flip_bit(e);
    case PlantedFault::kWrongHead:
      return wrong_head(e);
    case PlantedFault::kNanWeight:
      e.own(w.layers[middle(w)].up_proj)[1] = to_bf16(std::numeric_limits<float>::quiet_NaN());
      return;
    case PlantedFault::kBiasDropped:
      for (LayerWeights& layer : w.layers) {
        for (Matrix* bias : {&layer.q_bias, &layer.k_bias, &layer.v_bias})
          e.each_value(*bias, [](float) { return 0.0f; });
      }
      return;
    default:
      return;
  }
}

}  // namespace

std::string_view missing_for(PlantedFault fault, const ModelConfig& config) {
  switch (fault) {
    case PlantedFault::kSkipQNorm:
    case PlantedFault::kSkipKNorm:
    case PlantedFault::kNormAfterRope:
    case PlantedFault::kValueNormed:
      return config.shape.qk_norm ? "" : "QK-norm";
    case PlantedFault::kGqaMap:
      return config.shape.kv_heads > 1 && config.shape.gqa_group() > 1
                 ? ""
                 : "several kv heads of several query heads each";
    case PlantedFault::kNextValueHead:
      return config.shape.kv_heads > 1 ? "" : "several kv heads";
    case PlantedFault::kRopeUnscaled:
      return config.rope.scaling != RopeScaling::kNone ? "" : "scaled RoPE";
    case PlantedFault::kBiasDropped:
      return config.shape.qkv_bias ? "" : "biases of q, k and v";
    case PlantedFault::kGelu:
      return config.shape.activation == Activation::kSilu ? "" : "SiLU";
    default:
      return "";
  }
}

const std::vector<PlantedFaultInfo>& planted_faults() {
  using F = PlantedFault;
  using enum FaultSite;
  static const std::vector<PlantedFaultInfo> table = {
      {F::kRopeTheta, "rope_theta", kHostSide},
      {F::kRopeUnscaled, "rope_unscaled", kHostSide},
      {F::kSwapGateUp, "swap_gate_up", kHostSide},
      {F::kCacheLength, "cache_length", kHostSide},
      {F::kAnglesBf16, "angles_bf16", kHostSide},
      {F::kPositionOffset, "position_offset", kHostSide},
      {F::kRopeInterleaved, "rope_interleaved", kWeights},
      {F::kRotateSign, "rotate_sign", kWeights},
      {F::kRopePairsShifted, "rope_pairs_shifted", kWeights},
      {F::kNormPlusOne, "norm_plus_one", kWeights},
      {F::kFinalNormDropped, "final_norm_dropped", kWeights},
      {F::kEps1e5, "eps_1e5", kWeights},
      {F::kEpsZero, "eps_zero", kWeights},
      {F::kGqaMap, "gqa_map", kWeights},
      {F::kNextValueHead, "next_value_head", kWeights},
      {F::kScaleMissing, "scale_missing", kWeights},
      {F::kScaleTwice, "scale_twice", kWeights},
      {F::kLayerSkipped, "layer_skipped", kWeights},
      {F::kLayerTwice, "layer_twice", kWeights},
      {F::kTensorZero, "tensor_zero", kWeights},
      {F::kTailDropped, "tail_dropped", kWeights},
      {F::kWeightBitFlip, "weight_bit_flip", kWeights},
      {F::kWrongHead, "wrong_head", kWeights},
      {F::kNanWeight, "nan_weight", kWeights},
      {F::kBiasDropped, "bias_dropped", kWeights},
      {F::kCacheLengthPlus, "cache_length_plus", kKernel},
      {F::kQueryPosition, "query_position", kKernel},
      {F::kDecodePositions, "decode_positions", kKernel},
      {F::kSkipQNorm, "skip_q_norm", kKernel},
      {F::kSkipKNorm, "skip_k_norm", kKernel},
      {F::kNormAfterRope, "norm_after_rope", kKernel},
      {F::kValueNormed, "value_normed", kKernel},
      {F::kSlotUnwritten, "slot_unwritten", kKernel},
      {F::kEvery16thSkipped, "every_16th_skipped", kKernel},
      {F::kKvThreeBits, "kv_three_bits", kKernel},
      {F::kKvRowBefore, "kv_row_before", kKernel},
      {F::kMlpResidualDropped, "mlp_residual_dropped", kKernel},
      {F::kGelu, "gelu", kKernel},
      {F::kRowsLate, "rows_late", kKernel},
      {F::kBf16Sums, "bf16_sums", kKernel},
      {F::kBf16Softmax, "bf16_softmax", kKernel},
      {F::kNoSoftmaxMax, "no_softmax_max", kKernel},
      {F::kTailRowsUnscored, "tail_rows_unscored", kKernel},
      {F::kArgmaxHighest, "argmax_highest", kKernel},
      {F::kArgmaxEarly, "argmax_early", kKernel},
      {F::kArgmaxHalving, "argmax_halving", kKernel},
      {F::kNanLogit, "nan_logit", kKernel},
      {F::kSharedCache, "shared_cache", kKernel},
      {F::kResetKeepsRows, "reset_keeps_rows", kKernel},
      {F::kIdsClamped, "ids_clamped", kKernel},
      {F::kPrefixModified, "prefix_modified", kKernel},
      {F::kBlockDelayed, "block_delayed", kKernel},
      {F::kArrivalLost, "arrival_lost", kKernel},
      {F::kNotResident, "not_resident", kKernel},
      {F::kWordsReset, "words_reset", kKernel},
      {F::kStopsAt2048, "stops_at_2048", kKernel},
      {F::kCounterOverflow, "counter_overflow", kKernel},
      {F::kFastExp, "fast_exp", kKernel},
      {F::kHfRounding, "hf_rounding", kKernel},
      {F::kBf16Logits, "bf16_logits", kKernel},
      {F::kOtherOrder, "other_order", kKernel},
      {F::kNoFusedMultiply, "no_fused_multiply", kKernel},
      {F::kBypassed, "bypassed", kAround},
      {F::kStaleOutput, "stale_output", kAround},
      {F::kStopsEarly, "stops_early", kAround},
      {F::kRepeatsDiffer, "repeats_differ", kAround},
  };
  return table;
}

std::string_view planted_fault_name(PlantedFault fault) {
  if (fault == PlantedFault::kNone) return "none";
  return planted_faults()[static_cast<size_t>(fault) - 1].name;
}

FaultSite planted_fault_site(PlantedFault fault) {
  return planted_faults()[static_cast<size_t>(fault) - 1].site;
}

ModelWeights with_planted_fault(const ModelWeights& weights, PlantedFault fault) {
  if (fault == PlantedFault::kNone || planted_fault_site(fault) != FaultSite::kWeights) {
    return weights;
  }
  WeightEdit edited(weights);
  plant(edited, fault);
  return edited.weights();
}

}  // namespace mkbench
