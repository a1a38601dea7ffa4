// Where the row-major tensors of a DeviceModel lie in device memory. Shared by host and device.
#pragma once

#include <cstddef>

#include "references/model/shape.h"

namespace mkbench {

// Offsets of a layer's tensors inside its slab, in bf16 elements; slabs are `stride` apart. q, k
// and v are one matrix [qkv_width, hidden].
struct LayerLayout {
  size_t qkv, o, gate, up, down, input_norm, post_norm, q_norm, k_norm, stride;
};

constexpr LayerLayout layer_layout(const ModelShape& s) {
  const size_t h = static_cast<size_t>(s.hidden);
  LayerLayout at{};
  at.qkv = 0;
  at.o = at.qkv + h * static_cast<size_t>(s.qkv_width());
  at.gate = at.o + h * static_cast<size_t>(s.q_width());
  at.up = at.gate + h * static_cast<size_t>(s.intermediate);
  at.down = at.up + h * static_cast<size_t>(s.intermediate);
  at.input_norm = at.down + h * static_cast<size_t>(s.intermediate);
  at.post_norm = at.input_norm + h;
  at.q_norm = at.post_norm + h;
  at.k_norm = at.q_norm + static_cast<size_t>(s.head_dim);
  const size_t end = at.k_norm + static_cast<size_t>(s.head_dim);
  at.stride = (end + 127) / 128 * 128;  // slabs of n * 256 bytes: 16-byte loads are aligned
  return at;
}

// Cosine and sine of one rotary angle.
struct RopePair {
  float cos, sin;
};

}  // namespace mkbench
