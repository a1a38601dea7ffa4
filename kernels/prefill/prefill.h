// Batched prefill: the KV rows of many prompt ids at once, by tensor-core kernels of our own. What
// it computes is what a decode step computes (fp32 activations, residual stream and softmax; only
// the KV cache is bf16), in another order of summation. sm_80 and later.
//
// An fp32 activation x goes through the tensor cores as two bf16 values, high = bf16(x) and
// low = bf16(x - high): 16 bits of mantissa, twice the products. Weights are bf16 already.
//
// A row's bits depend on its ids and its position alone: not on how many rows are computed
// together, nor on the KV layout.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/device_model.h"
#include "kernels/prefill/inputs.h"

namespace mkbench::prefill {

// Rows of one pass over the model: enough for every weight to be read once per 512 ids.
inline constexpr int kChunkRows = 512;
// Fewer rows than this are left to single steps of the persistent kernels.
inline constexpr int kLeastRows = 16;

// The model in device memory. bf16 values travel as 16 raw bits.
struct PrefillModel {
  ModelShape shape;
  const unsigned short* layers;  // slabs, see LayerLayout; linear weights row-major
  const unsigned short* embed;   // (vocab, hidden)
  const RopePair* rope;          // (max_context, head_dim / 2)
  float eps;
  int context_bias;  // 0; -1 and 1 plant faults, see AttentionInput
};

// The rows of `model`, which must outlive the result.
PrefillModel prefill_model(const DeviceModel& model, const ModelConfig& config, int context_bias);

// What the kernels of a pass hand to each other: one allocation; `rows` is kChunkRows.
class PrefillScratch {
 public:
  // Also loads the kernels on the current device. Throws Error(kEnvUnfit) when memory does not
  // suffice, Error(kUnsupportedDevice), Error(kCuda).
  explicit PrefillScratch(const ModelShape& shape);
  // Bytes of device memory that it takes.
  static int64_t bytes(const ModelShape& shape);
  // All bits set: NaN in every format. Asynchronous.
  void poison() const;

  int* ids() const { return part<int>(0); }           // (rows)
  float* residual() const { return part<float>(1); }  // (rows, hidden)
  float* qkv() const { return part<float>(2); }       // (rows, qkv_width)
  SplitRows normed() const { return split(3); }       // (rows, hidden)
  SplitRows query() const { return split(5); }        // (rows, q_width), scaled, log2 units
  SplitRows attention() const { return split(7); }    // (rows, q_width)
  SplitRows swiglu() const { return split(9); }       // (rows, intermediate)

 private:
  static constexpr int kParts = 11;
  struct Layout {
    size_t begin[kParts + 1];  // bytes; the last is the end
  };
  static Layout layout(const ModelShape& shape);
  template <typename T>
  T* part(int i) const {
    return reinterpret_cast<T*>(memory_.get() + layout_.begin[i]);
  }
  SplitRows split(int i) const { return {part<unsigned short>(i), part<unsigned short>(i + 1)}; }

  Layout layout_;
  DeviceBuffer<char> memory_;
};

// Whether the kernels' tiles divide this shape: head_dim 128, widths multiples of 64.
bool supports(const ModelShape& shape);

// Appends the KV rows of `ids` at positions [position, position + ids.size()); rows below must be
// there. `after_chunk`, if given, hears the position reached each time that a chunk's rows are
// complete. Synchronous; returns the number of kernel launches. Throws Error(kBadInput) for a shape
// that is not supported or rows beyond the KV cache's room, Error(kCuda). The caller has checked
// the ids.
int64_t prefill_rows(const PrefillModel& model, const PlainKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk = {});
int64_t prefill_rows(const PrefillModel& model, const RingKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk = {});

}  // namespace mkbench::prefill
