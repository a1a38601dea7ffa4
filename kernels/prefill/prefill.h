// Batched prefill: computes the KV rows of many prompt ids at once, by tensor-core kernels of this
// project. It computes what decode steps compute (fp32 activations, residual stream and softmax;
// only the KV cache is bf16), in another order of summation. It needs sm_80 or later.
//
// An fp32 activation x goes through the tensor cores as two bf16 planes, high = bf16(x) and
// low = bf16(x - high): this keeps 16 bits of mantissa and doubles the products. Weights are bf16
// already.
//
// The bits of a row depend only on the ids up to it and on its position: not on how many rows are
// computed together, nor on the KV layout.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/device_model.h"
#include "kernels/prefill/inputs.h"

namespace mkbench::prefill {

// Rows of one pass over the model, which reads every weight once.
inline constexpr int kChunkRows = 512;
// Fewer rows than this are computed by single steps of the megakernel.
inline constexpr int kLeastRows = 16;

// The model in device memory. bf16 values are passed as 16 raw bits.
struct PrefillModel {
  ModelShape shape;
  const unsigned short* layers;  // slabs, see LayerLayout; linear weights row-major
  const unsigned short* embed;   // (vocab, hidden)
  const RopePair* rope;          // (max_context, head_dim / 2)
  float eps;
  int context_bias;  // 0; -1 and 1 plant faults, see AttentionInput
};

// Pointers into `model`, which must outlive the result.
PrefillModel prefill_model(const DeviceModel& model, const ModelConfig& config, int context_bias);

// The intermediate arrays of one pass, in one allocation; `rows` is kChunkRows.
class PrefillScratch {
 public:
  // Also loads the kernels on the current device. Throws Error(kEnvUnfit) when memory does not
  // suffice, Error(kUnsupportedDevice), Error(kCuda).
  explicit PrefillScratch(const ModelShape& shape);
  // Bytes of device memory that the constructor allocates.
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

// Whether the kernels' tiles divide this shape (head_dim 64 or 128, hidden and intermediate multiples
// of 64) and they compute its steps.
bool supports(const ModelShape& shape);

// Computes the KV rows of `ids` at positions [position, position + ids.size()). Earlier rows must
// be complete, and the caller must have checked the ids. `after_chunk`, if given, is called with
// the position reached each time that a chunk's rows are complete. Synchronous; returns the number
// of kernel launches. Throws Error(kBadInput) for a shape that is not supported or more rows than
// the KV cache holds, Error(kCuda).
int64_t prefill_rows(const PrefillModel& model, const PlainKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk = {});
int64_t prefill_rows(const PrefillModel& model, const RingKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk = {});

}  // namespace mkbench::prefill
