// KV caches of both layouts in device memory, and their rows on the host for comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/prefill/prefill.h"
#include "kernels/ring/kv_rows.h"
#include "references/oracle.h"

namespace mkbench::testing {

// Rows of a cache on the host: K then V of all kv heads, by layer and position, as bf16.
class KvRows {
 public:
  KvRows(const ModelShape& shape, int positions)
      : width_(2 * static_cast<size_t>(shape.kv_width())),
        positions_(static_cast<size_t>(positions)),
        values_(static_cast<size_t>(shape.layers) * positions_ * width_) {}
  std::span<Bf16> row(int layer, int position) {
    const size_t index = static_cast<size_t>(layer) * positions_ + static_cast<size_t>(position);
    return std::span(values_).subspan(index * width_, width_);
  }
  std::span<const Bf16> row(int layer, int position) const {
    return const_cast<KvRows*>(this)->row(layer, position);
  }

 private:
  size_t width_, positions_;
  std::vector<Bf16> values_;
};

template <typename T>
std::vector<T> download(const DeviceBuffer<T>& from) {
  std::vector<T> values(from.size());
  MKBENCH_CUDA(cudaMemcpy(values.data(), from.get(), from.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

// A cache in the plain megakernel's layout. All its bits are set at first.
class PlainCache {
 public:
  PlainCache(const ModelShape& shape, int max_context)
      : shape_(shape), max_context_(max_context), k_(elements()), v_(elements()) {
    poison();
  }
  void poison() {
    MKBENCH_CUDA(cudaMemset(k_.get(), 0xff, k_.bytes()));
    MKBENCH_CUDA(cudaMemset(v_.get(), 0xff, v_.bytes()));
  }
  prefill::PlainKv view() const { return {k_.get(), v_.get(), shape_.kv_heads, max_context_}; }
  KvRows rows(int positions) const {
    KvRows out(shape_, positions);
    const std::vector<unsigned short> k = download(k_), v = download(v_);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int position = 0; position < positions; ++position) {
        Bf16* to = out.row(layer, position).data();
        for (const auto* cache : {&k, &v}) {
          for (int head = 0; head < shape_.kv_heads; ++head, to += shape_.head_dim) {
            std::memcpy(to, cache->data() + offset(layer, head, position), 2 * head_dim());
          }
        }
      }
    }
    return out;
  }
  // The number of elements at and above `position` that were written since poison().
  int64_t touched_from(int position) const {
    int64_t count = 0;
    for (const auto& cache : {download(k_), download(v_)}) {
      for (size_t i = 0; i < cache.size(); ++i) {
        const size_t at = i / head_dim() % static_cast<size_t>(max_context_);
        count += at >= static_cast<size_t>(position) && cache[i] != 0xffff;
      }
    }
    return count;
  }

 private:
  size_t head_dim() const { return static_cast<size_t>(shape_.head_dim); }
  size_t elements() const { return offset(shape_.layers, 0, 0); }
  size_t offset(int layer, int head, int position) const {
    const size_t slab = static_cast<size_t>(layer * shape_.kv_heads + head);
    return (slab * static_cast<size_t>(max_context_) + static_cast<size_t>(position)) * head_dim();
  }

  ModelShape shape_;
  int max_context_;
  DeviceBuffer<unsigned short> k_, v_;
};

// A cache in the ring megakernel's layout, for Qwen3-0.6B's layer shape only. All its bits are set
// at first, and the largest |k| are 0.
class RingCache {
 public:
  RingCache(const ModelShape& shape, int max_context)
      : shape_(shape),
        max_context_(max_context),
        kv_(cache(nullptr).bytes()),
        key_maxima_(static_cast<size_t>(shape.layers * shape.kv_heads)) {
    poison();
  }
  void poison() {
    MKBENCH_CUDA(cudaMemset(kv_.get(), 0xff, kv_.bytes()));
    MKBENCH_CUDA(cudaMemset(key_maxima_.get(), 0, key_maxima_.bytes()));
  }
  prefill::RingKv view() const {
    return {kv_.get(), key_maxima_.get(), shape_.kv_heads, max_context_};
  }
  std::vector<float> key_maxima() const { return download(key_maxima_); }
  KvRows rows(int positions) const {
    KvRows out(shape_, positions);
    const std::vector<char> bytes = download(kv_);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int position = 0; position < positions; ++position) {
        Bf16* to = out.row(layer, position).data();
        for (const int kind : {0, 1}) {
          for (int head = 0; head < shape_.kv_heads; ++head) {
            const char* from = bytes.data() + static_cast<size_t>(layer * shape_.kv_heads + head) *
                                                  ring::kv_head_bytes(max_context_);
            for (int d = 0; d < shape_.head_dim; ++d) {
              std::memcpy(to++, from + ring::kv_offset(position, d, kind), 2);
            }
          }
        }
      }
    }
    return out;
  }
  // The number of elements that were written since poison().
  int64_t touched() const {
    int64_t count = 0;
    const std::vector<char> bytes = download(kv_);
    for (size_t i = 0; i < bytes.size(); i += 2) {
      uint16_t element;
      std::memcpy(&element, bytes.data() + i, 2);
      count += element != 0xffff;
    }
    return count;
  }

 private:
  ring::KvCache cache(char* data) const { return {data, shape_.layers, max_context_}; }

  ModelShape shape_;
  int max_context_;
  DeviceBuffer<char> kv_;
  DeviceBuffer<float> key_maxima_;
};

// The difference of a layer's rows [0, positions) from other rows.
struct LayerDifference {
  double relative = 0;   // length of the difference / length of the other, over all rows
  double worst_row = 0;  // the largest of a single row
  int worst_position = -1;
  double differing = 0;  // share of elements whose bf16 bits differ
  bool finite = true;
};

// `other(position)`: the row to compare with, [2 * kv_width] fp32.
template <typename Other>
LayerDifference difference(const KvRows& rows, int layer, int positions, Other other) {
  LayerDifference d;
  double error = 0, size = 0, count = 0, differing = 0;
  for (int position = 0; position < positions; ++position) {
    const std::span<const Bf16> mine = rows.row(layer, position);
    const std::vector<float> theirs = other(position);
    double row_error = 0, row_size = 0;
    for (size_t i = 0; i < mine.size(); ++i) {
      const double x = to_float(mine[i]), y = theirs[i];
      row_error += (x - y) * (x - y);
      row_size += y * y;
      differing += mine[i].bits != to_bf16(theirs[i]).bits;
    }
    count += static_cast<double>(mine.size());
    const double relative = std::sqrt(row_error / row_size);
    d.finite = d.finite && std::isfinite(relative);
    if (!(relative <= d.worst_row)) {
      d.worst_row = relative;
      d.worst_position = position;
    }
    error += row_error;
    size += row_size;
  }
  d.relative = std::sqrt(error / size);
  d.differing = differing / count;
  return d;
}

}  // namespace mkbench::testing
