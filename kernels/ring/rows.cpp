#include "kernels/ring/rows.h"

#include "kernels/launch_checks.h"
#include "references/model/family.h"

namespace mkbench::ring {
namespace {

std::string kilobytes(int64_t bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; }

// Models that ring's compiled layouts are made for, by the names of the shape table.
std::string models_with_layout() {
  std::string text;
  for (const ShapeRow& row : kShapeTable) {
    if (has_layout(row.shape)) text += (text.empty() ? "" : ", ") + std::string(row.name);
  }
  return text;
}

// The nearest smaller and larger values of a dimension, in steps of `step`, with which the shape
// would have a layout, e.g. "2048 or 2560"; empty if there are none.
std::string nearest_fitting(const ModelShape& shape, int ModelShape::*dimension, int step) {
  constexpr int kMostSteps = 64;
  ModelShape other = shape;
  const auto first = [&](int by) -> std::string {
    for (int i = 1; i <= kMostSteps; ++i) {
      other.*dimension = shape.*dimension + i * by;
      if (has_layout(other)) return std::to_string(other.*dimension);
    }
    return {};
  };
  const std::string below = first(-step), above = first(step);
  return below + (below.empty() || above.empty() ? "" : " or ") + above;
}

// Why dimensions that are supported one by one have no layout together, and what could be changed.
std::string together_obstacle(const ModelShape& shape, const LayoutFits& fits) {
  const LayerPlan plan = plan_of(shape);
  std::string text;
  const auto add = [&text](const char* field, int found, const std::string& wanted) {
    if (wanted.empty()) return;
    text += (text.empty() ? "" : ", or ") + std::string(field) + " found " + std::to_string(found) +
            " wanted " + wanted;
  };
  add("hidden_size", shape.hidden, nearest_fitting(shape, &ModelShape::hidden, kHiddenStep));
  add("intermediate_size", shape.intermediate,
      nearest_fitting(shape, &ModelShape::intermediate, kUnitRest * kBlocks));
  add("num_attention_heads", shape.heads, nearest_fitting(shape, &ModelShape::heads, 2 * kGroups));
  if (text.empty()) text = layer_shape_text(shape);
  if (!fits.room) {
    return text + " (a block needs " + kilobytes(plan.least_shared_bytes()) +
           " of shared memory and has " + kilobytes(kLargeBlock) + " at most)";
  }
  return text + " (together they do not divide into rounds of whole tiles and slots)";
}

}  // namespace

std::string layout_obstacle(const ModelShape& shape) {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& compiled = kLayerShapes.shapes[i];
    if (has_layout(compiled) && shape.same_layer_shape(compiled)) return {};
  }
  const std::string made_for = "; made for the layers of " + models_with_layout();
  std::string text;
  if (!shape.has_qwen3_layers())
    return "no layout for layers unlike Qwen3's (" + unlike_qwen3(shape) + ")" + made_for;
  const LayoutFits fits = layout_fits(shape);
  const auto compare = [&text](const char* field, int found, const std::string& wanted, bool fit) {
    if (fit) return;
    text += std::string(text.empty() ? "" : "; ") + field + " found " + std::to_string(found) +
            " wanted " + wanted;
  };
  compare("num_key_value_heads", shape.kv_heads, std::to_string(kGroups), fits.kv_heads);
  compare("head_dim", shape.head_dim, std::to_string(kHeadDim), fits.head_dim);
  const int two = 2 * kGroups, four = 4 * kGroups;
  compare("num_attention_heads", shape.heads, std::to_string(two) + " or " + std::to_string(four),
          fits.heads);
  compare("hidden_size", shape.hidden, "a multiple of " + std::to_string(kHiddenStep), fits.hidden);
  compare("intermediate_size", shape.intermediate,
          "a multiple of " + std::to_string(kRoundUnits * kBlocks) + ", or " +
              std::to_string(kUnitRest * kBlocks) + " more than such a multiple",
          fits.intermediate);
  if (fits.each() && !fits.all()) text = together_obstacle(shape, fits);
  if (text.empty()) text = "no kernel is compiled for layers with " + layer_shape_text(shape);
  return text + made_for;
}

std::string room_obstacle(const ModelShape& shape, int compute_major) {
  if (compute_major < kLeastComputeMajor) {
    return "compute capability " + std::to_string(compute_major) + ".x, wanted " +
           std::to_string(kLeastComputeMajor) + ".0 or later";
  }
  return with_layout(shape, [=]<typename L>(L) -> std::string {
    if (has_room<L>(compute_major)) return {};
    const int needed = L::kStagingBytes + L::kLeastRingSlots * kSlotBytes;
    return "a block has " + kilobytes(shared_limit(compute_major)) +
           " of shared memory, and layers with hidden_size " + std::to_string(L::kHidden) +
           " need " + kilobytes(needed) + ": " + kilobytes(L::kStagingBytes) +
           " beside a ring of " + std::to_string(L::kLeastRingSlots) + " slots";
  });
}

}  // namespace mkbench::ring
