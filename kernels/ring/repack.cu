#include "kernels/ring/repack.h"

namespace mkbench::ring {
namespace {

constexpr LayerLayout kSlab = layer_layout(kShape);
// The rows of q, k and v are stacked in one matrix; these are the first rows of k and of v.
constexpr size_t kKeyRows = kShape.q_width(), kValueRows = kKeyRows + kShape.kv_width();
constexpr size_t kAttentionColumns = kShape.q_width(), kUnitColumns = kShape.intermediate;
constexpr int kChunkElements = 8;  // a chunk is 16 bytes: one store of a thread
constexpr unsigned kSlotChunks = kSlotBytes / 16;
constexpr int kThreads = 256;

// The index of weight `w` in a layer's slab, in elements.
__device__ size_t slab_index(const WeightIndex& w) {
  const size_t row = static_cast<size_t>(w.row), column = static_cast<size_t>(w.column);
  switch (w.tensor) {
    case Tensor::kQ:
      return kSlab.qkv + row * kHidden + column;
    case Tensor::kK:
      return kSlab.qkv + (kKeyRows + row) * kHidden + column;
    case Tensor::kV:
      return kSlab.qkv + (kValueRows + row) * kHidden + column;
    case Tensor::kO:
      return kSlab.o + row * kAttentionColumns + column;
    case Tensor::kGate:
      return kSlab.gate + row * kHidden + column;
    case Tensor::kUp:
      return kSlab.up + row * kHidden + column;
    default:
      return kSlab.down + row * kUnitColumns + column;
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

// Where chunk `i` of a run of slots lies; `element` is its first in the slot.
struct Chunk {
  int slot, block, element;
};
__device__ Chunk chunk_at(size_t i) {
  return {static_cast<int>(i / kSlotChunks / kBlocks), static_cast<int>(i / kSlotChunks % kBlocks),
          static_cast<int>(i % kSlotChunks) * kChunkElements};
}

__global__ void repack_layers(const unsigned short* slabs, size_t chunks, uint4* stream) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < chunks;
       i += size_t{gridDim.x} * kThreads) {
    const Chunk c = chunk_at(i);
    const unsigned short* slab = slabs + c.slot / kLayerSlots * kSlab.stride;
    stream[i] = gather(c.element, [&](int element) {
      return slab[slab_index(
          weight_at(c.block / kMembers, c.block % kMembers, c.slot % kLayerSlots, element))];
    });
  }
}

__global__ void repack_head(const unsigned short* head, int vocab, size_t chunks, uint4* stream) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < chunks;
       i += size_t{gridDim.x} * kThreads) {
    const Chunk c = chunk_at(i);
    const HeadIndex first = head_at(vocab, c.block, c.slot, c.element);
    stream[i] = first.row < 0 ? make_uint4(0, 0, 0, 0) : gather(first.column, [&](int column) {
      return head[static_cast<size_t>(first.row) * kHidden + column];
    });
  }
}

constexpr size_t slots_bytes(int slots) { return slot_offset(slots, 0); }

void repack_stream(const DeviceModel& model, const ModelShape& shape, char* stream) {
  constexpr int kGrid = 4096;  // enough blocks to fill any GPU
  const size_t layers = slots_bytes(shape.layers * kLayerSlots);
  const size_t head = slots_bytes(head_slots(shape.vocab));
  repack_layers<<<kGrid, kThreads>>>(raw_bits(model.layers), layers / 16,
                                     reinterpret_cast<uint4*>(stream));
  MKBENCH_CUDA(cudaGetLastError());
  const DeviceBuffer<Bf16>& table = model.head.size() > 0 ? model.head : model.embed;
  repack_head<<<kGrid, kThreads>>>(raw_bits(table), shape.vocab, head / 16,
                                   reinterpret_cast<uint4*>(stream + layers));
  MKBENCH_CUDA(cudaGetLastError());
}

// Copies `width` elements from `offset` on of every slab, layer after layer.
void gather_vectors(const DeviceModel& model, int layers, size_t offset, size_t width, Bf16* to) {
  MKBENCH_CUDA(cudaMemcpy2D(to, 2 * width, model.layers.get() + offset, 2 * kSlab.stride, 2 * width,
                            static_cast<size_t>(layers), cudaMemcpyDeviceToDevice));
}

size_t norm_elements(const ModelShape& shape) {
  return (2 * static_cast<size_t>(shape.layers) + 1) * kHidden;
}
size_t qk_norm_elements(const ModelShape& shape) {
  return static_cast<size_t>(shape.layers) * 2 * kHeadDim;
}

}  // namespace

int64_t streamed_model_bytes(const ModelShape& shape) {
  return static_cast<int64_t>(slots_bytes(stream_slots(shape.layers, shape.vocab)) +
                              2 * (norm_elements(shape) + qk_norm_elements(shape)));
}

StreamedModel repack(const DeviceModel& model, const ModelShape& shape) {
  StreamedModel to;
  to.stream = DeviceBuffer<char>(slots_bytes(stream_slots(shape.layers, shape.vocab)));
  to.norms = DeviceBuffer<Bf16>(norm_elements(shape));
  to.qk_norms = DeviceBuffer<Bf16>(qk_norm_elements(shape));
  repack_stream(model, shape, to.stream.get());
  static_assert(kSlab.post_norm == kSlab.input_norm + kHidden);
  gather_vectors(model, shape.layers, kSlab.input_norm, 2 * kHidden, to.norms.get());
  MKBENCH_CUDA(cudaMemcpy(to.norms.get() + 2 * static_cast<size_t>(shape.layers) * kHidden,
                          model.final_norm.get(), 2 * kHidden, cudaMemcpyDeviceToDevice));
  static_assert(kSlab.k_norm == kSlab.q_norm + kHeadDim);
  gather_vectors(model, shape.layers, kSlab.q_norm, 2 * kHeadDim, to.qk_norms.get());
  MKBENCH_CUDA(cudaDeviceSynchronize());
  return to;
}

}  // namespace mkbench::ring
