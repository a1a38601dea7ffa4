#include "kernels/host_twin/workspace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/partition.h"

namespace mkbench::host_twin {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Bf16 kNaNBf16{0x7fc0};

void fill_nan(std::vector<float>& v) { std::fill(v.begin(), v.end(), kNaN); }

// Continues a 64-bit hash over bytes, eight at a time; the last eight are padded with zeros.
uint64_t mix(uint64_t hash, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, from + i, std::min<size_t>(8, bytes - i));
    // The odd multiplier spreads every bit upwards, the rotation brings high bits down again.
    hash = std::rotl((hash ^ word) * 0xd6e8feb86659fd93u, 27);
  }
  return hash;
}

}  // namespace

KvCache::KvCache(const ModelShape& shape, int max_context)
    : shape_(shape), max_context_(static_cast<size_t>(max_context)) {
  const size_t size = static_cast<size_t>(shape.layers) * shape.kv_width() * max_context_;
  k_.assign(size, kNaNBf16);
  v_.assign(size, kNaNBf16);
}

void KvCache::poison(int from) {
  const size_t count = (max_context_ - static_cast<size_t>(from)) * shape_.head_dim;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      std::fill_n(k(layer, head, from), count, kNaNBf16);
      std::fill_n(v(layer, head, from), count, kNaNBf16);
    }
  }
}

uint64_t KvCache::checksum(int positions) const {
  const size_t bytes = static_cast<size_t>(positions) * shape_.head_dim * sizeof(Bf16);
  uint64_t hash = static_cast<uint64_t>(positions);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      hash = mix(hash, k_.data() + at(layer, head, 0), bytes);
      hash = mix(hash, v_.data() + at(layer, head, 0), bytes);
    }
  }
  return hash;
}

std::vector<float> KvCache::row(int layer, int position) const {
  std::vector<float> out;
  out.reserve(2 * static_cast<size_t>(shape_.kv_width()));
  for (const std::vector<Bf16>* side : {&k_, &v_}) {
    for (int head = 0; head < shape_.kv_heads; ++head) {
      const Bf16* from = side->data() + at(layer, head, position);
      for (int d = 0; d < shape_.head_dim; ++d) out.push_back(to_float(from[d]));
    }
  }
  return out;
}

void RopeTable::extend(int positions) {
  const size_t half = inv_freq_.size();
  for (size_t p = cos_.size() / half; p < static_cast<size_t>(positions); ++p) {
    for (const float frequency : inv_freq_) {
      const float angle = effective_angle(frequency, static_cast<int>(p), fault_);
      cos_.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
      sin_.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

SharedScratch::SharedScratch(const ModelShape& s, int blocks)
    : h(s.hidden),
      qkv(s.qkv_width()),
      partial_max(static_cast<size_t>(s.heads) * kMaxSplits),
      partial_sum(partial_max.size()),
      partial_v(partial_max.size() * s.head_dim),
      act(s.intermediate),
      logits(s.vocab),
      hidden(static_cast<size_t>(s.layers) * s.hidden),
      best(blocks) {
  poison();
}

void SharedScratch::poison() {
  for (auto* v : {&h, &qkv, &partial_max, &partial_sum, &partial_v, &act, &logits, &hidden}) {
    fill_nan(*v);
  }
  std::fill(best.begin(), best.end(), Best{kNaN, -1});
}

BlockScratch::BlockScratch(const ModelShape& s, int blocks)
    : x(s.hidden),
      attn(s.q_width()),
      q(static_cast<size_t>(s.gqa_group()) * s.head_dim),
      k(s.head_dim),
      v_sums(s.head_dim),
      scores(kScoreTile),
      // No part of partition() is larger than the first.
      rows(std::max(partition(s.hidden, blocks, 0).size(),
                    2 * partition(s.intermediate, blocks, 0).size())) {
  poison();
}

void BlockScratch::poison() {
  for (auto* v : {&x, &attn, &q, &k, &v_sums, &scores, &rows}) fill_nan(*v);
}

}  // namespace mkbench::host_twin
