#include "kernels/ring/repack.h"
#include "kernels/ring/rows.h"

namespace mkbench::ring {
namespace {

// The model's own layout: the rows of q, k and v are stacked in one matrix.
template <typename L>
inline constexpr LayerLayout kSlab = layer_layout(L::kShape);
template <typename L>
inline constexpr size_t kKeyRows = L::kShape.q_width();  // the first row of k
template <typename L>
inline constexpr size_t kValueRows = kKeyRows<L> + L::kShape.kv_width();
constexpr int kChunkElements = 8;  // a chunk is 16 bytes: one store of a thread
constexpr unsigned kSlotChunks = kSlotBytes / 16;
constexpr int kThreads = 256;

// The index of weight `w` in a layer's slab, in elements.
template <typename L>
__device__ size_t slab_index(const WeightIndex& w) {
  constexpr size_t kHidden = L::kHidden;
  constexpr size_t kAttentionColumns = kKeyRows<L>, kUnitColumns = L::kShape.intermediate;
  const size_t row = static_cast<size_t>(w.row), column = static_cast<size_t>(w.column);
  switch (w.tensor) {
    case Tensor::kQ:
      return kSlab<L>.qkv + row * kHidden + column;
    case Tensor::kK:
      return kSlab<L>.qkv + (kKeyRows<L> + row) * kHidden + column;
    case Tensor::kV:
      return kSlab<L>.qkv + (kValueRows<L> + row) * kHidden + column;
    case Tensor::kO:
      return kSlab<L>.o + row * kAttentionColumns + column;
    case Tensor::kGate:
      return kSlab<L>.gate + row * kHidden + column;
    case Tensor::kUp:
      return kSlab<L>.up + row * kHidden + column;
    default:
      return kSlab<L>.down + row * kUnitColumns + column;
  }
}

// element(first) .. element(first + 7) as one chunk.
template <typename Element>
__device__ uint4 gather(int first, Element element) {
  const auto pair = [&](int i) {
    return element(first + i) | static_cast<unsigned>(element(first + i + 1)) << 16;
  };
  return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

// Where chunk `i` of a run of slots lies; `element` is the place of its first element in the slot.
struct Chunk {
  int slot, block, element;
};
__device__ Chunk chunk_at(size_t i) {
  return {static_cast<int>(i / kSlotChunks / kBlocks), static_cast<int>(i / kSlotChunks % kBlocks),
          static_cast<int>(i % kSlotChunks) * kChunkElements};
}

template <typename L>
__global__ void repack_layers(const unsigned short* slabs, size_t chunks, uint4* stream) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < chunks;
       i += size_t{gridDim.x} * kThreads) {
    const Chunk c = chunk_at(i);
    const unsigned short* slab = slabs + c.slot / L::kLayerSlots * kSlab<L>.stride;
    stream[i] = gather(c.element, [&](int element) -> unsigned short {
      const WeightIndex w =
          L::weight_at(c.block / kMembers, c.block % kMembers, c.slot % L::kLayerSlots, element);
      return w.row < 0 ? 0 : slab[slab_index<L>(w)];
    });
  }
}

template <typename L>
__global__ void repack_head(const unsigned short* head, int vocab, size_t chunks, uint4* stream) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < chunks;
       i += size_t{gridDim.x} * kThreads) {
    const Chunk c = chunk_at(i);
    stream[i] = gather(c.element, [&](int element) -> unsigned short {
      const HeadIndex at = L::head_at(vocab, c.block, c.slot, element);
      return at.row < 0 ? 0 : head[static_cast<size_t>(at.row) * L::kHidden + at.column];
    });
  }
}

constexpr size_t slots_bytes(int slots) { return slot_offset(slots, 0); }

template <typename L>
void repack_stream(const DeviceModel& model, const ModelShape& shape, char* stream) {
  constexpr int kGrid = 4096;  // enough blocks to fill any GPU
  const size_t layers = slots_bytes(shape.layers * L::kLayerSlots);
  const size_t head = slots_bytes(L::head_slots(shape.vocab));
  repack_layers<L>
      <<<kGrid, kThreads>>>(raw_bits(model.layers), layers / 16, reinterpret_cast<uint4*>(stream));
  MKBENCH_CUDA(cudaGetLastError());
  const DeviceBuffer<Bf16>& table = model.head.size() > 0 ? model.head : model.embed;
  repack_head<L><<<kGrid, kThreads>>>(raw_bits(table), shape.vocab, head / 16,
                                      reinterpret_cast<uint4*>(stream + layers));
  MKBENCH_CUDA(cudaGetLastError());
}

// Copies `width` elements, from `offset` on, of each layer's slab (`stride` elements) to `to`.
void gather_vectors(const DeviceModel& model, int layers, size_t stride, size_t offset,
                    size_t width, Bf16* to) {
  MKBENCH_CUDA(cudaMemcpy2D(to, 2 * width, model.layers.get() + offset, 2 * stride, 2 * width,
                            static_cast<size_t>(layers), cudaMemcpyDeviceToDevice));
}

size_t norm_elements(const ModelShape& shape) {
  return (2 * static_cast<size_t>(shape.layers) + 1) * static_cast<size_t>(shape.hidden);
}
size_t qk_norm_elements(const ModelShape& shape) {
  return static_cast<size_t>(shape.layers) * 2 * kHeadDim;
}

size_t stream_bytes(const ModelShape& shape) {
  return with_layout(shape, [&]<typename L>(L) {
    return slots_bytes(L::stream_slots(shape.layers, shape.vocab));
  });
}

}  // namespace

int64_t streamed_model_bytes(const ModelShape& shape) {
  return static_cast<int64_t>(stream_bytes(shape) +
                              2 * (norm_elements(shape) + qk_norm_elements(shape)));
}

StreamedModel repack(const DeviceModel& model, const ModelShape& shape) {
  StreamedModel to;
  to.stream = DeviceBuffer<char>(stream_bytes(shape));
  to.norms = DeviceBuffer<Bf16>(norm_elements(shape));
  to.qk_norms = DeviceBuffer<Bf16>(qk_norm_elements(shape));
  with_layout(shape, [&]<typename L>(L) { repack_stream<L>(model, shape, to.stream.get()); });
  // In a slab the input and post-attention norms are neighbours, and so are the two QK-norms.
  const LayerLayout slab = layer_layout(shape);
  const size_t hidden = static_cast<size_t>(shape.hidden);
  gather_vectors(model, shape.layers, slab.stride, slab.input_norm, 2 * hidden, to.norms.get());
  MKBENCH_CUDA(cudaMemcpy(to.norms.get() + 2 * static_cast<size_t>(shape.layers) * hidden,
                          model.final_norm.get(), 2 * hidden, cudaMemcpyDeviceToDevice));
  gather_vectors(model, shape.layers, slab.stride, slab.q_norm, 2 * kHeadDim, to.qk_norms.get());
  MKBENCH_CUDA(cudaDeviceSynchronize());
  return to;
}

}  // namespace mkbench::ring
