// The fault table: rows in the order of their numbers, lanes in the order of the rows.
#include "harness/selftest/fault_table.h"

namespace mkbench {
namespace {

// Checks that fail together in several lanes. The ratios and the ratchet judge the error of the
// logits, and the sweep judges it at every cache length; decided, near_tie and flips judge
// teacher-forced tokens, strict judges free-running ones.
constexpr std::string_view kLogits = "r_rms,r_step,r_inf,r_kl,ratchet,sweep";
constexpr std::string_view kLogitsAndTokens =
    "r_rms,r_step,r_inf,r_kl,ratchet,decided,near_tie,flips,strict,sweep";
constexpr std::string_view kLogitsAndForcedTokens =
    "r_rms,r_step,r_inf,r_kl,ratchet,decided,near_tie,flips,sweep";
constexpr std::string_view kLogitsAndClearTokens =
    "r_rms,r_step,r_inf,r_kl,ratchet,decided,flips,strict,sweep";
constexpr std::string_view kLogitsAndDecided = "r_rms,r_step,r_inf,r_kl,ratchet,decided,sweep";
constexpr std::string_view kLogitsAndFlips = "r_rms,r_step,r_inf,r_kl,ratchet,decided,flips,sweep";
// Logits that are NaN have no ratio.
constexpr std::string_view kNan = "finite,decided,near_tie,flips,strict,sweep";
constexpr std::string_view kNanAndIsolation =
    "finite,decided,near_tie,flips,strict,sweep,isolation";
// The id is not the argmax of the logits.
constexpr std::string_view kArgmax = "decided,near_tie,flips,self,strict,sweep";
// Rows of the vocabulary that are never scored stay NaN and never win: every probe fails except
// bad_ids.
constexpr std::string_view kUnscoredRows =
    "head,small_norm,large_scores,weights_sum,fp32_sums,two_engines";

// A fault that is planted in the same way in every listed lane.
struct Planted {
  std::string_view row;
  std::vector<Lane> lanes;
  std::string_view plant, model, fails;
  double r_rms = 0;  // in the first of `lanes`
};

std::vector<FaultLane> spread(const std::vector<Planted>& table) {
  std::vector<FaultLane> lanes;
  for (const Planted& p : table) {
    for (const Lane lane : p.lanes) {
      const double r_rms = lane == p.lanes.front() ? p.r_rms : 0;
      lanes.push_back({p.row, lane, p.plant, p.model, p.fails, r_rms});
    }
  }
  return lanes;
}

}  // namespace

const std::vector<FaultRow>& fault_rows() {
  static const std::vector<FaultRow> table = {
      {"1", "rope_theta 1e4", false, "tests/support/config_cases.cpp: \"C8\""},
      {"2", "RoPE on interleaved pairs", false, ""},
      {"3", "rotate_half with the other sign", false, ""},
      {"4", "position + 1 for queries alone", false, ""},
      {"5", "positions of decode shifted against the prompt's", false, ""},
      {"6", "angles in bf16", false, ""},
      {"7a", "q_norm skipped", false, ""},
      {"7b", "k_norm skipped", false, ""},
      {"8", "QK-norm after RoPE", false, ""},
      {"9", "v normed too", false, ""},
      {"10a", "norm weights + 1", false, ""},
      {"10b", "weight of the final norm dropped", false, ""},
      {"11", "eps 1e-5", false, "tests/support/config_cases.cpp: rms_norm_eps"},
      {"12", "eps 0", false, "tests/support/config_cases.cpp: rms_norm_eps"},
      {"13", "query head h reads kv head h % kv_heads", false, ""},
      {"14", "V of the next kv head for one head", false, ""},
      {"15a", "scores not scaled", false, ""},
      {"15b", "scores scaled twice", false, ""},
      {"16", "newest KV row dropped", false, ""},
      {"17", "one KV row too many read", false, ""},
      {"18", "one KV row never written", false, ""},
      {"19", "every 16th position skipped", false, ""},
      {"20", "KV rows with 3 bits of mantissa", false, ""},
      {"21", "KV row written to position - 1", false, ""},
      {"22a", "one layer skipped", false, ""},
      {"22b", "one layer run twice", false, ""},
      {"23", "one MLP residual dropped", false, ""},
      {"24a", "gate and up swapped", false, ""},
      {"24b", "GELU for SiLU", false, ""},
      {"25", "one tensor never loaded (zeros)", false,
       "tests/support/checkpoint_cases.cpp: \"S45\""},
      {"26", "last 8 columns of a split sum dropped", false, ""},
      {"27", "one weight times 256 (a flipped bit)", false, ""},
      {"28", "one block's rows late by a token", false, ""},
      {"29", "sums in bf16 by chunks of 32", false, ""},
      {"30", "softmax weights in bf16", false, ""},
      {"31", "softmax without its maximum", false, ""},
      {"32", "head is another matrix", false, "tests/support/checkpoint_cases.cpp: \"S46\""},
      {"33", "last 128 rows of the vocabulary never scored", false, ""},
      {"34", "argmax takes the highest of equals", false, ""},
      {"35", "a block's argmax read before it is written", false, ""},
      {"36", "scratch too small, or bf16 for fp32", false,
       "tests/kernels/test_plain.cpp: plain stays inside its buffers, filled to the last position"},
      {"37", "barrier words reset inside the kernel", false,
       "tests/kernels/test_ring_parity.cpp: no wait of the large ring takes an older round for its "
       "own"},
      {"38", "fence before a flag left out", false,
       "rule: kernels/plain/exchange.cuh and kernels/ring/exchange.cuh alone hold flags, each a "
       "release and an acquire; no tool shows a missing one for certain"},
      {"39", "shared state read through the read-only cache", false,
       "rule: ptx::load_l2 and acquires alone read what other blocks write; reviewed, because a "
       "stale line shows only by chance"},
      {"40", "grid larger than can be resident", false,
       "tests/kernels/test_plain.cpp: plain refuses what it cannot do and never clamps"},
      {"41", "two decoders share static memory", false, ""},
      {"42", "reset() keeps rows", false, ""},
      {"43", "bad ids clamped", false,
       "tests/kernels/test_plain.cpp: plain refuses what it cannot do and never clamps"},
      {"44", "error of an allocation or a launch ignored", false,
       "rule: every call of CUDA goes through MKBENCH_CUDA (kernels/cuda_check.h), which throws"},
      {"45", "kernel bypassed, something else answers", false, ""},
      {"46", "stale output", false, ""},
      {"47", "KV rows of the prefix modified", false, ""},
      {"48", "work on another stream, timed too early", false,
       "harness/selftest/timing_faults.cpp: \"T5\""},
      {"49", "what is judged is not what is timed", false,
       "harness/selftest/timing_faults.cpp: \"T4\""},
      {"50", "reference edited, missing or made anew", false,
       "tests/judge/test_parity_token_only.cpp: a reference of other weights is refused with both "
       "hashes"},
      {"51", "a failure that ends with exit code 0", false,
       "tests/report/test_verdict.cpp: every kind of error has a verdict that is not a pass"},
      {"52", "a random token at any one step", false, ""},
      {"53", "weights of another model or revision", false, ""},
      {"54", "other prompt ids (BOS, template, tokenizer)", false,
       "rule: prompts are ids in the reference and never pass a tokenizer here"},
      {"55", "generation ends early", false, ""},
      {"56a", "NaN in one weight", false, "tests/support/checkpoint_cases.cpp: NaN and Inf"},
      {"56b", "NaN in one logit", false, ""},
      {"57", "code of another architecture", false,
       "tests/device/test_doctor.cpp: no code of ours"},
      {"58", "times of failed runs", false,
       "tests/judge/test_aggregate.cpp: no times without a passing verdict"},
      {"59", "argmax reduced by halving over 3 * 2^k threads", false, ""},
      {"60", "other bits when the same input comes again", false, ""},
      {"61", "R_rms just above its limit", false, ""},
      {"62", "R_step just above its limit", false, ""},
      {"63", "R_inf just above its limit", false, ""},
      {"64", "R_KL just above its limit", false, ""},
      {"65", "frequencies of RoPE not scaled", false, "tests/references/test_rope.cpp: llama3"},
      {"66", "biases of q, k and v dropped", false, ""},
      {"67", "RoPE on pairs shifted by one", false, ""},
      {"c1", "no fault", true, ""},
      {"c2", "sums in another order", true, ""},
      {"c3", "exp() as precise as a GPU's approximation", true, ""},
      {"c4", "rounding to bf16 where HF rounds", true, ""},
      {"c5", "logits rounded to bf16", true, ""},
      {"c6", "all positions shifted alike", true, ""},
      {"c7", "no fused multiply-add", true, ""},
      {"c8", "ratios just below their limits", true, ""},
  };
  return table;
}

const std::vector<FaultLane>& fault_lanes() {
  using enum Lane;
  static const std::vector<FaultLane> table = spread({
      {"1", {kTwin, kPlain}, "rope_theta", "tiny", kLogitsAndTokens, 68.66},
      {"1", {kRing}, "rope_theta", "four layers", kLogits},
      {"2", {kTwin, kPlain}, "rope_interleaved", "tiny", kLogitsAndTokens, 146.3},
      {"3", {kTwin, kPlain}, "rotate_sign", "tiny", kLogitsAndTokens, 159.6},
      {"4", {kTwin, kPlain}, "query_position", "tiny", kLogitsAndTokens, 100.1},
      {"5", {kTwin, kPlain}, "decode_positions", "tiny", kLogitsAndTokens, 19.95},
      {"6", {kTwin, kPlain}, "angles_bf16", "tiny", kLogitsAndForcedTokens, 18.66},
      {"6", {kRing}, "angles_bf16", "four layers", "ratchet"},
      {"7a", {kTwin, kPlain}, "skip_q_norm", "tiny", kLogitsAndTokens, 52.64},
      {"7b", {kTwin, kPlain}, "skip_k_norm", "tiny", kLogitsAndTokens, 91.76},
      {"8", {kTwin}, "norm_after_rope", "tiny", kLogitsAndDecided, 3.246},
      {"8", {kPlain}, "norm_after_rope", "tiny", kLogitsAndFlips},
      {"9", {kTwin, kPlain}, "value_normed", "tiny", kLogitsAndTokens, 72.3},
      {"10a", {kTwin, kPlain}, "norm_plus_one", "tiny", kLogitsAndTokens, 126.9},
      {"10b", {kTwin, kPlain}, "final_norm_dropped", "tiny", kLogits, 18.18},
      {"10b", {kRing}, "final_norm_dropped", "four layers", kLogits},
      {"11", {kTwin}, "eps_1e5", "tiny-untied", "r_rms,r_inf,r_kl,ratchet", 0.463},
      {"11", {kTwinProbes, kPlainProbes}, "eps_1e5", "tiny", "small_norm,fp32_sums"},
      {"12", {kTwinProbes, kPlainProbes}, "eps_zero", "tiny", "small_norm,fp32_sums"},
      {"13", {kTwin, kPlain}, "gqa_map", "tiny", kLogitsAndTokens, 127},
      {"14", {kTwin, kPlain}, "next_value_head", "tiny", kLogitsAndTokens, 124.1},
      {"15a", {kTwin, kPlain}, "scale_missing", "tiny", kLogitsAndTokens, 79.36},
      {"15b", {kTwin, kPlain}, "scale_twice", "tiny", kLogitsAndTokens, 243.1},
      {"15b", {kRing}, "scale_twice", "four layers", kLogitsAndForcedTokens},
      {"16", {kTwin, kPlain}, "cache_length", "tiny", kLogitsAndTokens, 103.8},
      {"16", {kRing}, "cache_length", "four layers", kLogits},
      {"17", {kTwin, kPlain}, "cache_length_plus", "tiny", kNan},
      {"18", {kTwin}, "slot_unwritten", "tiny", kNan},
      {"18", {kPlain}, "slot_unwritten", "tiny", "finite,decided,flips,strict,sweep"},
      {"19", {kTwin, kPlain}, "every_16th_skipped", "tiny", kLogitsAndClearTokens, 45.41},
      {"20", {kTwin, kPlain}, "kv_three_bits", "tiny", kLogits, 2.774},
      {"21", {kTwin, kPlain}, "kv_row_before", "tiny", kNanAndIsolation},
      {"22a", {kTwin, kPlain}, "layer_skipped", "tiny", kLogitsAndTokens, 99.11},
      {"22b", {kTwin, kPlain}, "layer_twice", "tiny", kLogitsAndTokens, 98.78},
      {"23", {kTwin, kPlain}, "mlp_residual_dropped", "tiny", kLogitsAndTokens, 148.1},
      {"24a", {kTwin, kPlain}, "swap_gate_up", "tiny", kLogitsAndTokens, 76.57},
      {"24b", {kTwin, kPlain}, "gelu", "tiny", kLogitsAndFlips, 12.6},
      {"25", {kLoader}, "tensor_zero", "tiny", "weights"},
      {"25", {kTwin, kPlain}, "tensor_zero", "tiny", kLogitsAndTokens, 83.2},
      {"26", {kTwin, kPlain}, "tail_dropped", "tiny", kLogits, 10.64},
      {"26", {kRing}, "tail_dropped", "four layers", "r_rms,r_kl,ratchet"},
      {"27", {kLoader}, "weight_bit_flip", "tiny", "weights"},
      {"27", {kTwin, kPlain}, "weight_bit_flip", "tiny", kLogitsAndTokens, 49.07},
      {"28",
       {kTwin},
       "rows_late",
       "tiny",
       "r_rms,r_step,r_inf,r_kl,ratchet,decided,strict,sweep,isolation",
       43.31},
      {"29", {kTwin}, "bf16_sums", "tiny", "r_rms,r_step,r_inf,r_kl,ratchet", 0.644},
      {"29", {kTwinProbes}, "bf16_sums", "tiny", "fp32_sums"},
      {"30", {kTwinProbes, kPlainProbes}, "bf16_softmax", "tiny", "weights_sum"},
      {"31", {kTwinProbes, kPlainProbes}, "no_softmax_max", "tiny", "large_scores"},
      {"32", {kLoader}, "wrong_head", "tiny-untied", "weights"},
      {"32", {kTwin, kPlain}, "wrong_head", "tiny-untied", kLogitsAndTokens, 118.5},
      {"33", {kTwin, kPlain}, "tail_rows_unscored", "tiny", "finite,sweep"},
      {"33", {kTwinProbes, kPlainProbes}, "tail_rows_unscored", "tiny", kUnscoredRows},
      {"34", {kGate}, "highest_among_equals", "tiny", "self"},
      {"34", {kTwinProbes, kPlainProbes}, "argmax_highest", "tiny", "head"},
      {"35", {kTwin}, "argmax_early", "tiny", kArgmax, 0.1924},
      {"35", {kTwinProbes}, "argmax_early", "tiny", "head"},
      {"41", {kTwin}, "shared_cache", "tiny", "isolation", 0.1924},
      {"41", {kTwinProbes}, "shared_cache", "tiny", "two_engines"},
      {"42",
       {kTwin},
       "reset_keeps_rows",
       "tiny",
       "r_rms,r_step,r_inf,r_kl,ratchet,decided,near_tie,flips,same,repeats,sweep,isolation",
       22.79},
      {"43", {kTwinProbes}, "ids_clamped", "tiny", "bad_ids"},
      {"45", {kGate}, "stuck_counter", "tiny", "ran"},
      {"45", {kTwin}, "bypassed", "tiny", "ran", 0.1924},
      {"46", {kGate}, "stale_output", "tiny", "finite,decided,near_tie,flips,strict"},
      {"46",
       {kTwin},
       "stale_output",
       "tiny",
       "finite,decided,near_tie,flips,strict,same,repeats,sweep,isolation"},
      {"47", {kTwin}, "prefix_modified", "tiny", "isolation", 0.1916},
      {"49", {kGate}, "other_without_logits", "tiny", "same"},
      {"52", {kGate}, "random_token", "tiny", "decided,self,strict"},
      {"52", {kGate}, "second_best", "tiny", "self"},
      {"53", {kLoader}, "layer_twice", "tiny", "weights"},
      {"55", {kGate}, "short_output", "tiny", "ran,decided,flips,strict,same"},
      {"55", {kTwin}, "stops_early", "tiny", "ran,decided,flips,strict,same,sweep", 0.1924},
      {"56a", {kLoader}, "nan_weight", "tiny", "weights"},
      {"56a", {kTwin, kPlain}, "nan_weight", "tiny", kNan},
      {"56b", {kGate}, "nan_logit", "tiny", "finite"},
      {"56b", {kGate}, "nan_gives_zero", "tiny", "finite,decided,self,strict"},
      {"56b", {kTwin, kPlain}, "nan_logit", "tiny", kNan},
      {"59", {kTwin, kPlain}, "argmax_halving", "tiny", kArgmax, 0.1924},
      {"59", {kTwinProbes, kPlainProbes}, "argmax_halving", "tiny", "head"},
      {"60", {kGate}, "bits_differ", "tiny", "repeats"},
      {"60", {kTwin}, "repeats_differ", "tiny", "repeats,isolation", 0.1924},
      {"61", {kGate}, "r_rms_above", "tiny", "r_rms", 1.545},
      {"62", {kGate}, "r_step_above", "tiny", "r_step", 0.335},
      {"63", {kGate}, "r_inf_above", "tiny", "r_inf", 0.00664},
      {"64", {kGate}, "r_kl_above", "tiny", "r_kl", 0.00397},
      {"65", {kTwin}, "rope_unscaled", "tiny-llama", kLogitsAndClearTokens, 20.2},
      {"66", {kTwin}, "bias_dropped", "tiny-qwen2", kLogitsAndTokens, 24.3},
      {"67", {kTwin}, "rope_pairs_shifted", "tiny-llama", kLogitsAndTokens, 101},
      {"c1", {kGate}, "sound", "tiny", ""},
      {"c1", {kTwin, kTwinProbes, kPlain, kPlainProbes}, "none", "tiny", "", 0.1924},
      {"c1", {kTwin}, "none", "tiny-untied", "", 0.1869},
      {"c1", {kTwin}, "none", "tiny-llama", "", 0.234},
      {"c1", {kTwin}, "none", "tiny-qwen2", "", 0.247},
      {"c1", {kRing}, "none", "four layers", ""},
      {"c2", {kTwin}, "other_order", "tiny", "", 0.1928},
      {"c2", {kTwin}, "other_order", "tiny-untied", "", 0.1874},
      {"c3", {kTwin, kTwinProbes}, "fast_exp", "tiny", "", 0.1924},
      {"c3", {kTwin}, "fast_exp", "tiny-untied", "", 0.1871},
      {"c4", {kTwin}, "hf_rounding", "tiny", "", 0.76},
      {"c4", {kTwin}, "hf_rounding", "tiny-untied", "", 0.7361},
      {"c5", {kTwin}, "bf16_logits", "tiny", "", 0.3073},
      {"c5", {kTwin}, "bf16_logits", "tiny-untied", "", 0.3274},
      {"c6", {kTwin, kPlain}, "position_offset", "tiny", "", 0.1832},
      {"c6", {kTwin}, "position_offset", "tiny-untied", "", 0.1807},
      {"c6", {kRing}, "position_offset", "four layers", ""},
      {"c7", {kTwin, kTwinProbes}, "no_fused_multiply", "tiny", "", 0.1923},
      {"c8", {kGate}, "r_rms_below", "tiny", "", 1.455},
      {"c8", {kGate}, "r_step_below", "tiny", "", 0.316},
      {"c8", {kGate}, "r_inf_below", "tiny", "", 0.00632},
      {"c8", {kGate}, "r_kl_below", "tiny", "", 0.00385},
  });
  return table;
}

std::span<const FaultLane> shape_faults() {
  constexpr struct {
    std::string_view row, plant, fails = kLogits;
  } kFaults[] = {
      {"1", "rope_theta"},       {"2", "rope_interleaved"},
      {"3", "rotate_sign"},      {"6", "angles_bf16", "ratchet"},
      {"10a", "norm_plus_one"},  {"10b", "final_norm_dropped"},
      {"13", "gqa_map"},         {"14", "next_value_head"},
      {"15a", "scale_missing"},  {"15b", "scale_twice"},
      {"16", "cache_length"},    {"22a", "layer_skipped"},
      {"22b", "layer_twice"},    {"24a", "swap_gate_up"},
      {"25", "tensor_zero"},     {"26", "tail_dropped", "ratchet"},
      {"27", "weight_bit_flip"}, {"32", "wrong_head"},
      {"c1", "none", ""},        {"c6", "position_offset", ""},
  };
  static const std::vector<FaultLane> table = [&] {
    std::vector<FaultLane> lanes;
    for (const auto& [row, plant, fails] : kFaults)
      lanes.push_back({row, Lane::kTwin, plant, "", fails, 0, true});
    return lanes;
  }();
  return table;
}

}  // namespace mkbench
