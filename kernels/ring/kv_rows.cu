#include "kernels/device_buffer.h"
#include "kernels/mix.cuh"
#include "kernels/ring/kv_rows.h"

namespace mkbench::ring {
namespace {

constexpr int kThreads = 128;
constexpr int kHalfElements = kHalfTileRows * kHeadDim;
constexpr int kHalvesPerRound = kRoundPositions / kHalfTileRows;

// Bytes from a head's start to the half tile that holds positions from `first` (a multiple of 32)
// on; kind 0 = K, 1 = V.
__device__ size_t half_offset(int first, int kind) {
  return tile_offset(first / kRoundPositions, tile_member(first), kind) +
         static_cast<size_t>(tile_row(first) / kHalfTileRows * kHalfTileBytes);
}

unsigned slabs(const KvCache& kv) { return static_cast<unsigned>(kv.layers * kGroups); }

// Sets all bits of rows at and above `position`. Grid: half tiles from the one that holds
// `position` on, heads of all layers.
__global__ void fill_rows(char* kv, size_t head_bytes, int position) {
  const int first = (position / kHalfTileRows + static_cast<int>(blockIdx.x)) * kHalfTileRows;
  char* head = kv + blockIdx.y * head_bytes;
  for (int kind = 0; kind < 2; ++kind) {
    char* half = head + half_offset(first, kind);
    if (first >= position) {
      uint4* all = reinterpret_cast<uint4*>(half);
      for (int i = static_cast<int>(threadIdx.x); i < kHalfTileBytes / 16; i += kThreads) {
        all[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
      }
      continue;
    }
    unsigned short* elements = reinterpret_cast<unsigned short*>(half);
    for (int i = static_cast<int>(threadIdx.x); i < kHalfElements; i += kThreads) {
      if (first + half_index(kind, i).row >= position) elements[i] = 0xffff;
    }
  }
}

// Adds up hashes of words of 4 elements; elements of rows at and above `positions` count as zero.
// Grid: half tiles that hold rows below `positions`, heads of all layers.
__global__ void sum_rows(const char* kv, size_t head_bytes, int positions,
                         unsigned long long* sum) {
  const int first = static_cast<int>(blockIdx.x) * kHalfTileRows;
  const bool whole = first + kHalfTileRows <= positions;
  unsigned long long mine = 0;
  for (int kind = 0; kind < 2; ++kind) {
    const size_t at = blockIdx.y * head_bytes + half_offset(first, kind);
    const unsigned long long* words = reinterpret_cast<const unsigned long long*>(kv + at);
    for (int i = static_cast<int>(threadIdx.x); i < kHalfElements / 4; i += kThreads) {
      unsigned long long mask = ~0ull;
      if (!whole) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (first + half_index(kind, 4 * i + e).row >= positions) mask &= ~(0xffffull << 16 * e);
        }
      }
      if (mask != 0) mine += mix_at(words[i] & mask, at / 8 + i);
    }
  }
  if (mine != 0) atomicAdd(sum, mine);
}

// Widens one layer's K and V of `position` to fp32. Grid: K or V, kv heads; one thread for each
// element.
__global__ void widen_row(const char* layer, size_t head_bytes, int position, float* row) {
  const int kind = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int d = static_cast<int>(threadIdx.x);
  const size_t at = head * head_bytes + kv_offset(position, d, kind);
  const unsigned bits = *reinterpret_cast<const unsigned short*>(layer + at);
  row[(kind * kGroups + head) * kHeadDim + d] = __uint_as_float(bits << 16);
}

// Copies row-major rows into the cache. Grid: positions, heads of all layers; one thread for each
// element of K and of V.
__global__ void scatter_rows(char* kv, size_t head_bytes, const Bf16* k, const Bf16* v,
                             int source_rows, int first) {
  const int d = static_cast<int>(threadIdx.x), position = static_cast<int>(blockIdx.x);
  const size_t from = (blockIdx.y * static_cast<size_t>(source_rows) + position) * kHeadDim + d;
  char* head = kv + blockIdx.y * head_bytes;
  *reinterpret_cast<Bf16*>(head + kv_offset(first + position, d, 0)) = k[from];
  *reinterpret_cast<Bf16*>(head + kv_offset(first + position, d, 1)) = v[from];
}

// Finds each head's largest |k|. Grid: 32 parts of the positions, heads of all layers; a warp takes
// a row at a time. Lengths are compared by their bits: floats >= 0 are ordered as their bits are,
// with NaN above all others.
__global__ void find_maxima(const char* kv, size_t head_bytes, int positions, int* maxima) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / 32;
  const int warps = static_cast<int>(gridDim.x) * kThreads / 32;
  const char* head = kv + blockIdx.y * head_bytes;
  int largest = 0;
  for (int position = warp; position < positions; position += warps) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kHeadDim / 32; ++i) {
      const size_t at = kv_offset(position, 32 * i + lane, 0);
      const unsigned bits = *reinterpret_cast<const unsigned short*>(head + at);
      const float x = __uint_as_float(bits << 16);
      squares = fmaf(x, x, squares);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) squares += __shfl_xor_sync(~0u, squares, mask);
    largest = max(largest, __float_as_int(sqrtf(squares)) & 0x7fffffff);
  }
  if (lane == 0) atomicMax(maxima + blockIdx.y, largest);
}

unsigned halves_of(int positions) {
  return static_cast<unsigned>((positions + kHalfTileRows - 1) / kHalfTileRows);
}

}  // namespace

void poison_rows(const KvCache& kv, int position) {
  const int halves = kv_rounds(kv.max_context) * kHalvesPerRound - position / kHalfTileRows;
  if (halves <= 0) return;
  fill_rows<<<dim3(static_cast<unsigned>(halves), slabs(kv)), kThreads>>>(
      kv.data, kv_head_bytes(kv.max_context), position);
  MKBENCH_CUDA(cudaGetLastError());
}

uint64_t kv_checksum(const KvCache& kv, int positions) {
  if (positions == 0) return 0;
  DeviceBuffer<unsigned long long> sum(1);
  MKBENCH_CUDA(cudaMemset(sum.get(), 0, sum.bytes()));
  sum_rows<<<dim3(halves_of(positions), slabs(kv)), kThreads>>>(
      kv.data, kv_head_bytes(kv.max_context), positions, sum.get());
  MKBENCH_CUDA(cudaGetLastError());
  unsigned long long result = 0;
  MKBENCH_CUDA(cudaMemcpy(&result, sum.get(), sizeof(result), cudaMemcpyDeviceToHost));
  return result;
}

std::vector<float> read_row(const KvCache& kv, int layer, int position) {
  const size_t head_bytes = kv_head_bytes(kv.max_context);
  std::vector<float> row(size_t{2} * kGroups * kHeadDim);
  DeviceBuffer<float> widened(row.size());
  widen_row<<<dim3(2, kGroups), kHeadDim>>>(
      kv.data + static_cast<size_t>(layer) * kGroups * head_bytes, head_bytes, position,
      widened.get());
  MKBENCH_CUDA(cudaGetLastError());
  MKBENCH_CUDA(cudaMemcpy(row.data(), widened.get(), widened.bytes(), cudaMemcpyDeviceToHost));
  return row;
}

void write_rows(const KvCache& kv, const RowSource& from, int first, int positions) {
  if (positions == 0) return;
  scatter_rows<<<dim3(static_cast<unsigned>(positions), slabs(kv)), kHeadDim>>>(
      kv.data, kv_head_bytes(kv.max_context), from.k, from.v, from.source_rows, first);
  MKBENCH_CUDA(cudaGetLastError());
  MKBENCH_CUDA(cudaDeviceSynchronize());
}

std::vector<float> key_maxima(const KvCache& kv, int positions) {
  std::vector<float> maxima(slabs(kv));
  if (positions == 0) return maxima;
  DeviceBuffer<float> found(maxima.size());
  MKBENCH_CUDA(cudaMemset(found.get(), 0, found.bytes()));
  find_maxima<<<dim3(32, slabs(kv)), kThreads>>>(kv.data, kv_head_bytes(kv.max_context), positions,
                                                 reinterpret_cast<int*>(found.get()));
  MKBENCH_CUDA(cudaGetLastError());
  MKBENCH_CUDA(cudaMemcpy(maxima.data(), found.get(), found.bytes(), cudaMemcpyDeviceToHost));
  return maxima;
}

}  // namespace mkbench::ring
