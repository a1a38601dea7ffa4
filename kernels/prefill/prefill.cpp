#include "kernels/prefill/prefill.h"

#include <algorithm>
#include <string>

#include "kernels/prefill/launches.h"
#include "kernels/ring/layout.h"
#include "references/model/family.h"

namespace mkbench::prefill {
namespace {

size_t align_256(size_t bytes) { return (bytes + 255) / 256 * 256; }

void check(const PrefillModel& model, int kv_heads, int max_context, size_t count, int position) {
  const ModelShape& s = model.shape;
  if (!supports(s) || kv_heads != s.kv_heads) {
    throw Error(ErrorKind::kBadInput,
                "prefill: not all of these are as wanted: head_dim is " +
                    std::to_string(s.head_dim) + ", wanted 64 or 128; hidden_size " +
                    std::to_string(s.hidden) + " and intermediate_size " +
                    std::to_string(s.intermediate) +
                    ", wanted multiples of 64; num_key_value_heads is " +
                    std::to_string(s.kv_heads) + ", wanted " + std::to_string(kv_heads) +
                    (s.has_llama_steps() ? "" : "; layers are " + unlike_qwen3(s)));
  }
  if (position < 0 || static_cast<int64_t>(position) + static_cast<int64_t>(count) > max_context) {
    throw Error(ErrorKind::kBadInput, "prefill: " + std::to_string(position) + " rows + " +
                                          std::to_string(count) + " ids > " +
                                          std::to_string(max_context) + " positions");
  }
}

// Runs one chunk of rows through the model; returns the number of launches. The last layer stops
// after its KV rows, because nothing uses the rest of that layer.
template <class Kv>
int64_t run_chunk(const PrefillModel& model, const Kv& kv, const PrefillScratch& scratch,
                  std::span<const int32_t> ids, int position) {
  const ModelShape& s = model.shape;
  const LayerLayout at = layer_layout(s);
  const int rows = static_cast<int>(ids.size());
  MKBENCH_CUDA(
      cudaMemcpyAsync(scratch.ids(), ids.data(), ids.size_bytes(), cudaMemcpyHostToDevice));
  embed_rows(model.embed, scratch.ids(), rows, s.hidden, scratch.residual());
  const RopePair* rope =
      model.rope + static_cast<size_t>(position) * static_cast<size_t>(s.head_dim / 2);
  const unsigned short* slab = model.layers;
  int64_t launches = 1;
  for (int layer = 0; layer < s.layers; ++layer, slab += at.stride) {
    normalize_rows(scratch.residual(), slab + at.input_norm, model.eps, rows, s.hidden,
                   scratch.normed());
    multiply_store({scratch.normed(), slab + at.qkv, rows, s.hidden}, s.qkv_width(), scratch.qkv());
    finish_heads(
        {scratch.qkv(), s.qk_norm ? slab + at.q_norm : nullptr,
         s.qk_norm ? slab + at.k_norm : nullptr, s.qkv_bias ? slab + at.bias : nullptr, rope,
         scratch.query(), rows, s.heads, s.kv_heads, s.head_dim, layer, position, model.eps},
        kv);
    launches += 3;
    if (layer + 1 == s.layers) break;
    attend_rows({scratch.query(), scratch.attention(), rows, s.heads, s.kv_heads, s.head_dim, layer,
                 position, model.context_bias},
                kv);
    multiply_add({scratch.attention(), slab + at.o, rows, s.q_width()}, s.hidden,
                 scratch.residual());
    normalize_rows(scratch.residual(), slab + at.post_norm, model.eps, rows, s.hidden,
                   scratch.normed());
    multiply_swiglu({scratch.normed(), slab + at.gate, rows, s.hidden}, s.intermediate,
                    scratch.swiglu());
    multiply_add({scratch.swiglu(), slab + at.down, rows, s.intermediate}, s.hidden,
                 scratch.residual());
    launches += 5;
  }
  return launches;
}

template <class Kv>
int64_t run(const PrefillModel& model, const Kv& kv, const PrefillScratch& scratch,
            std::span<const int32_t> ids, int position,
            const std::function<void(int)>& after_chunk) {
  check(model, kv.kv_heads, kv.max_context, ids.size(), position);
  int64_t launches = 0;
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), static_cast<size_t>(kChunkRows));
    launches += run_chunk(model, kv, scratch, ids.first(count), position);
    MKBENCH_CUDA(cudaDeviceSynchronize());
    ids = ids.subspan(count);
    position += static_cast<int>(count);
    if (after_chunk) after_chunk(position);
  }
  return launches;
}

}  // namespace

PrefillScratch::Layout PrefillScratch::layout(const ModelShape& s) {
  const size_t hidden = 2 * static_cast<size_t>(s.hidden), q = 2 * static_cast<size_t>(s.q_width()),
               mlp = 2 * static_cast<size_t>(s.intermediate);
  const size_t row_bytes[kParts] = {
      4, 2 * hidden, 4 * static_cast<size_t>(s.qkv_width()), hidden, hidden, q, q, q, q, mlp, mlp};
  Layout at{};
  for (int i = 0; i < kParts; ++i) {
    at.begin[i + 1] = at.begin[i] + align_256(row_bytes[i] * static_cast<size_t>(kChunkRows));
  }
  return at;
}

PrefillScratch::PrefillScratch(const ModelShape& shape)
    : layout_(layout(shape)), memory_(layout_.begin[kParts]) {
  load_rows();
  load_gemm();
  load_attention();
}

int64_t PrefillScratch::bytes(const ModelShape& shape) {
  return static_cast<int64_t>(layout(shape).begin[kParts]);
}

void PrefillScratch::poison() const {
  MKBENCH_CUDA(cudaMemsetAsync(memory_.get(), 0xff, memory_.bytes()));
}

PrefillModel prefill_model(const DeviceModel& model, const ModelConfig& config, int context_bias) {
  return {.shape = config.shape,
          .layers = raw_bits(model.layers),
          .embed = raw_bits(model.embed),
          .rope = model.rope.get(),
          .eps = static_cast<float>(config.rms_norm_eps),
          .context_bias = context_bias};
}

bool supports(const ModelShape& s) {
  return (s.head_dim == 64 || s.head_dim == 128) && s.hidden % 64 == 0 &&
         s.intermediate % 64 == 0 && s.has_llama_steps();
}

int64_t prefill_rows(const PrefillModel& model, const PlainKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk) {
  return run(model, kv, scratch, ids, position, after_chunk);
}

int64_t prefill_rows(const PrefillModel& model, const RingKv& kv, const PrefillScratch& scratch,
                     std::span<const int32_t> ids, int position,
                     const std::function<void(int)>& after_chunk) {
  if (model.shape.kv_heads != ring::kGroups || model.shape.head_dim != ring::kHeadDim) {
    throw Error(ErrorKind::kBadInput,
                "prefill: ring's KV layout is for " + std::to_string(ring::kGroups) +
                    " KV heads of dimension " + std::to_string(ring::kHeadDim));
  }
  return run(model, kv, scratch, ids, position, after_chunk);
}

}  // namespace mkbench::prefill
