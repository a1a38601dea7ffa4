// Where the row-major tensors of a DeviceModel lie in device memory. Shared by host and device.
#pragma once

#include <cstddef>

#include "references/model/shape.h"

namespace mkbench {

// Offsets of a layer's tensors inside its slab, in bf16 elements; slabs are `stride` apart. q, k
// and v are one matrix [qkv_width, hidden], with one bias vector. Tensors that the model does not
// have take no room.
struct LayerLayout {
  size_t qkv, o, gate, up, down, input_norm, post_norm, q_norm, k_norm, bias, stride;
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
  const size_t head_norm = s.qk_norm ? static_cast<size_t>(s.head_dim) : 0;
  at.k_norm = at.q_norm + head_norm;
  at.bias = at.k_norm + head_norm;
  const size_t end = at.bias + (s.qkv_bias ? static_cast<size_t>(s.qkv_width()) : 0);
  at.stride = (end + 127) / 128 * 128;  // slabs of n * 256 bytes: 16-byte loads are aligned
  return at;
}

// Cosine and sine of one rotary angle.
struct RopePair {
  float cos, sin;
};

}  // namespace mkbench
