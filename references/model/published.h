// The published models that mkbench knows by name: one row each. A new model is a new row; names,
// kernel instances and forecasts follow from it, and analytic weights where they have room
// (analytic_models()).
#pragma once

#include "references/model/shape.h"

namespace mkbench {

struct ShapeRow {
  const char* name;  // NAME in `synthetic:NAME` and, in upper or lower case, in `ORG/NAME`
  ModelShape shape;
  bool tied;  // the LM head is the embedding
  double rope_theta;
  int max_positions;
  double rms_norm_eps = 1e-6;
  double llama3_factor = 1;  // RoPE's `factor` in scaling of type llama3; 1: RoPE is not scaled
};
// The other values of llama3 scaling, equal in all rows; scripts/shape_table.py reads them here.
inline constexpr double kLlama3LowFreqFactor = 1, kLlama3HighFreqFactor = 4;
inline constexpr int kLlama3OriginalPositions = 8192;

// Source: config.json of Qwen/Qwen3-0.6B, -1.7B, -4B, -8B and -14B, and `talker_config` of
// Qwen/Qwen3-TTS-12Hz-0.6B-Base.
inline constexpr ShapeRow kShapeTable[] = {
    {"qwen3-0.6b", kQwen3_0_6B, true, 1e6, 40960},
    {"qwen3-1.7b", {2048, 6144, 28, 16, 8, 128, 151936}, true, 1e6, 40960},
    {"qwen3-4b", {2560, 9728, 36, 32, 8, 128, 151936}, true, 1e6, 40960},
    {"qwen3-8b", {4096, 12288, 36, 32, 8, 128, 151936}, false, 1e6, 40960},
    {"qwen3-14b", {5120, 17408, 40, 40, 8, 128, 151936}, false, 1e6, 40960},
    {"qwen3-tts-talker", {1024, 3072, 28, 16, 8, 128, 3072}, false, 1e6, 32768},
};

// Models of other families: no layer has QK-norm; those of Qwen2.5 have biases. Source: config.json of
// meta-llama/Llama-3.2-1B and -3B and Llama-3.1-8B, HuggingFaceTB/SmolLM2-135M, -360M and -1.7B,
// Qwen/Qwen2.5-0.5B, -1.5B and -7B.
inline constexpr ShapeRow kLiveTable[] = {
    {"llama-3.2-1b", {2048, 8192, 16, 32, 8, 64, 128256, false}, true, 5e5, 131072, 1e-5, 32},
    {"llama-3.2-3b", {3072, 8192, 28, 24, 8, 128, 128256, false}, true, 5e5, 131072, 1e-5, 32},
    {"llama-3.1-8b", {4096, 14336, 32, 32, 8, 128, 128256, false}, false, 5e5, 131072, 1e-5, 8},
    {"smollm2-135m", {576, 1536, 30, 9, 3, 64, 49152, false}, true, 1e5, 8192, 1e-5},
    {"smollm2-360m", {960, 2560, 32, 15, 5, 64, 49152, false}, true, 1e5, 8192, 1e-5},
    {"smollm2-1.7b", {2048, 8192, 24, 32, 32, 64, 49152, false}, true, 1.3e5, 8192, 1e-5},
    {"qwen2.5-0.5b", {896, 4864, 24, 14, 2, 64, 151936, false, true}, true, 1e6, 32768},
    {"qwen2.5-1.5b", {1536, 8960, 28, 12, 2, 128, 151936, false, true}, true, 1e6, 131072},
    {"qwen2.5-7b", {3584, 18944, 28, 28, 4, 128, 152064, false, true}, false, 1e6, 131072},
};

inline constexpr int kShapeRows = static_cast<int>(sizeof kShapeTable / sizeof kShapeTable[0]);
inline constexpr int kLiveRows = static_cast<int>(sizeof kLiveTable / sizeof kLiveTable[0]);

// Both tables as one list.
struct PublishedModels {
  ShapeRow rows[kShapeRows + kLiveRows];
  constexpr const ShapeRow* begin() const { return rows; }
  constexpr const ShapeRow* end() const { return rows + kShapeRows + kLiveRows; }
};
constexpr PublishedModels join_tables() {
  PublishedModels all{};
  for (int i = 0; i < kShapeRows; ++i) all.rows[i] = kShapeTable[i];
  for (int i = 0; i < kLiveRows; ++i) all.rows[kShapeRows + i] = kLiveTable[i];
  return all;
}
inline constexpr PublishedModels kPublishedModels = join_tables();

// Not a published model: four layers of the 0.6B with the talker's vocabulary, the smallest
// analytic weights that every kernel for the 0.6B runs. A step is so short that a soak takes many.
inline constexpr ShapeRow kCutRow{"cut", {1024, 3072, 4, 16, 8, 128, 3072}, true, 1e6, 40960};
static_assert(kCutRow.shape.same_layer_shape(kQwen3_0_6B));

// A check of the rows above: parameters, and bytes of K and V that a position adds.
static_assert(kLiveTable[0].shape.parameters(true) == 1'235'814'400);
static_assert(kLiveTable[1].shape.parameters(true) == 3'212'749'824);
static_assert(kLiveTable[2].shape.parameters(false) == 8'030'261'248);
static_assert(kLiveTable[3].shape.parameters(true) == 134'515'008);
static_assert(kLiveTable[4].shape.parameters(true) == 361'821'120);
static_assert(kLiveTable[5].shape.parameters(true) == 1'711'376'384);
static_assert(kLiveTable[6].shape.parameters(true) == 494'032'768);
static_assert(kLiveTable[7].shape.parameters(true) == 1'543'714'304);
static_assert(kLiveTable[8].shape.parameters(false) == 7'615'616'512);
static_assert(kShapeTable[1].shape.parameters(true) == 1'720'574'976);
static_assert(kShapeTable[2].shape.parameters(true) == 4'022'468'096);
static_assert(kShapeTable[3].shape.parameters(false) == 8'190'735'360);
static_assert(kShapeTable[4].shape.parameters(false) == 14'768'307'200);
static_assert(kShapeTable[1].shape.kv_bytes_per_position() == 114'688);
static_assert(kShapeTable[2].shape.kv_bytes_per_position() == 147'456);
static_assert(kShapeTable[3].shape.kv_bytes_per_position() == 147'456);
static_assert(kShapeTable[4].shape.kv_bytes_per_position() == 163'840);

}  // namespace mkbench
