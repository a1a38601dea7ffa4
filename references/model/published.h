// The published models of the Qwen3 family that mkbench knows by name: one row each. A new model is
// a new row; names, analytic weights, kernel instances and forecasts follow from it.
#pragma once

#include "references/model/shape.h"

namespace mkbench {

struct ShapeRow {
  const char* name;  // NAME in `synthetic:NAME` and, in upper or lower case, in `ORG/NAME`
  ModelShape shape;
  bool tied;  // the LM head is the embedding
  double rope_theta;
  int max_positions;
};

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

// Not a published model: four layers of the 0.6B with the talker's vocabulary, the smallest
// analytic weights that every kernel for the 0.6B runs. A step is so short that a soak takes many.
inline constexpr ShapeRow kCutRow{"cut", {1024, 3072, 4, 16, 8, 128, 3072}, true, 1e6, 40960};
static_assert(kCutRow.shape.same_layer_shape(kQwen3_0_6B));

// A check of the rows above: parameters, and bytes of K and V that a position adds.
static_assert(kShapeTable[1].shape.parameters(true) == 1'720'574'976);
static_assert(kShapeTable[2].shape.parameters(true) == 4'022'468'096);
static_assert(kShapeTable[3].shape.parameters(false) == 8'190'735'360);
static_assert(kShapeTable[4].shape.parameters(false) == 14'768'307'200);
static_assert(kShapeTable[1].shape.kv_bytes_per_position() == 114'688);
static_assert(kShapeTable[2].shape.kv_bytes_per_position() == 147'456);
static_assert(kShapeTable[3].shape.kv_bytes_per_position() == 147'456);
static_assert(kShapeTable[4].shape.kv_bytes_per_position() == 163'840);

}  // namespace mkbench
