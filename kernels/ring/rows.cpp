#include "kernels/ring/rows.h"

#include "kernels/launch_checks.h"

namespace mkbench::ring {
namespace {

// The ring needs bulk copies, and barriers that count the bytes of copies.
constexpr int kLeastComputeMajor = 9;

std::string kilobytes(int bytes) { return std::to_string((bytes + 1023) / 1024) + " KiB"; }

// Models that ring's compiled layouts are made for, by the names of the shape table.
std::string models_with_layout() {
  std::string text;
  for (const ShapeRow& row : kShapeTable) {
    if (has_layout(row.shape)) text += (text.empty() ? "" : ", ") + std::string(row.name);
  }
  return text;
}

}  // namespace

std::string layout_obstacle(const ModelShape& shape) {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& compiled = kLayerShapes.shapes[i];
    if (has_layout(compiled) && shape.same_layer_shape(compiled)) return {};
  }
  const std::string made_for = "; made for the layers of " + models_with_layout();
  std::string text;
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
  compare("hidden_size", shape.hidden, "a multiple of " + std::to_string(16 * kConsumerWarps),
          fits.hidden);
  compare("intermediate_size", shape.intermediate,
          "a multiple of " + std::to_string(kUnitStep * kBlocks) + ", or one and " +
              std::to_string(kUnitRest * kBlocks) + " more",
          fits.intermediate);
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
