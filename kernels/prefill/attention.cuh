// Prefill attention, causal over the KV cache, which already holds the chunk's own rows.
//   out = softmax(q K^T / sqrt(head_dim)) V
// Reads   query (rows, q_width) as two bf16 planes, scaled to log2 units; K and V rows of the cache
//         (bf16).
// Writes  out (rows, q_width) as two bf16 planes.
// A block takes 64 rows of one head with 8 warps: warp w takes the 16 rows from 16 (w % 4) on and
// half w / 4 of every 64 positions, with a running maximum of its own. The two halves are merged at
// the end. The next 64 positions are loaded into registers while the current ones are computed.
#pragma once

#include "kernels/prefill/kv_view.cuh"
#include "kernels/ptx.cuh"

namespace mkbench::prefill {

inline constexpr int kQueryRows = 64;
// Two stages of K and V, and q's low plane: both of q's planes in registers would spill.
template <int kHeadDim>
inline constexpr int kAttentionShared = 2 * 2 * kTileBytes<kHeadDim> + kQueryRows* kHeadDim * 2;
inline constexpr float kMasked = -1e30f;  // finite, so that differences of maxima are finite

// The number of positions that a row attends to: all up to its own. Planted faults (context_bias)
// add one position or drop the newest one, unless it is the only one.
__device__ __forceinline__ int attended(const AttentionInput& in, int row) {
  return max(1, in.position + row + 1 + in.context_bias);
}

// Attention of a warp's 16 rows; lane 4g + j holds parts of rows g and g + 8.
template <int kHeadDim>
struct WarpAttention {
  static constexpr int kSteps = kHeadDim / 16, kTiles = kHeadDim / 8;
  uint4 query_high[kSteps];     // q's high plane: A operands of 16 dimensions each
  float maximum[2], sum[2];     // of rows g and g + 8; the sum is over this lane's keys only
  float numerators[kTiles][4];  // accumulators of 8 dimensions each
  int limit[2];                 // number of positions that each row attends to

  __device__ __forceinline__ void start(const AttentionInput& in, int head, int first_row,
                                        int lane) {
    const size_t width = static_cast<size_t>(in.heads) * kHeadDim;
    size_t at[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(first_row + lane / 4 + 8 * i, in.rows - 1);
      limit[i] = attended(in, row);
      at[i] =
          static_cast<size_t>(row) * width + static_cast<size_t>(head * kHeadDim + lane % 4 * 2);
      maximum[i] = kMasked;
      sum[i] = 0;
    }
    auto pair = [&](size_t from) {
      return *reinterpret_cast<const unsigned*>(in.query.high + from);
    };
#pragma unroll
    for (int d = 0; d < kHeadDim; d += 16) {
      query_high[d / 16] =
          make_uint4(pair(at[0] + d), pair(at[1] + d), pair(at[0] + d + 8), pair(at[1] + d + 8));
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) numerators[i][e] = 0;
    }
  }

  // Scores against 32 keys of `tile` from row `key` on. `low` is the address of q's low plane at
  // the warp's first row.
  __device__ __forceinline__ void score(unsigned low, unsigned tile, int key, int lane,
                                        float (&scores)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i][e] = 0;
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint4 k[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        k[i] = ptx::load_tiles(tile + static_cast<unsigned>(chunk_offset<kTiles>(
                                          key + i * 16 + b_row(lane), 2 * s + b_chunk(lane))));
      }
#pragma unroll
      for (int plane = 0; plane < 2; ++plane) {
        const uint4 q = plane == 0
                            ? query_high[s]
                            : ptx::load_tiles(low + static_cast<unsigned>(chunk_offset<kTiles>(
                                                        a_row(lane), 2 * s + a_chunk(lane))));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          ptx::mma_k16(scores[2 * i], q, k[i].x, k[i].y);
          ptx::mma_k16(scores[2 * i + 1], q, k[i].z, k[i].w);
        }
      }
    }
  }

  // Turns scores into exponentials relative to the new maximum and rescales the sums so far to it.
  // `position` is the first key's position.
  __device__ __forceinline__ void weigh(float (&scores)[4][4], int position, int lane) {
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = maximum[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = scores[i][2 * r + e];
          if (position + i * 8 + lane % 4 * 2 + e >= limit[r]) x = kMasked;
          top = fmaxf(top, x);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      rescale[r] = ptx::exp2_approx(maximum[r] - top);
      maximum[r] = top;
      sum[r] *= rescale[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          // A row without keys so far has the maximum kMasked, so a masked score would weigh
          // 2^0 = 1: a select gives it the weight 0.
          float& x = scores[i][2 * r + e];
          x = x == kMasked ? 0.0f : ptx::exp2_approx(x - top);
          sum[r] += x;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) numerators[i][e] *= rescale[e / 2];
    }
  }

  // numerators += weights * V. Two neighbouring tiles of scores make one A operand.
  __device__ __forceinline__ void add_values(unsigned tile, int key, int lane,
                                             const float (&weights)[4][4]) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const float(&near)[4] = weights[2 * s], (&far)[4] = weights[2 * s + 1];
      const SplitPair a0 = split_pair(near[0], near[1]), a1 = split_pair(near[2], near[3]);
      const SplitPair a2 = split_pair(far[0], far[1]), a3 = split_pair(far[2], far[3]);
      const uint4 high = make_uint4(a0.high, a1.high, a2.high, a3.high);
      const uint4 low = make_uint4(a0.low, a1.low, a2.low, a3.low);
#pragma unroll
      for (int d = 0; d < kSteps; ++d) {
        const uint4 v = ptx::load_tiles_transposed(
            tile + static_cast<unsigned>(
                       chunk_offset<kTiles>(key + s * 16 + a_row(lane), 2 * d + a_chunk(lane))));
        ptx::mma_k16(numerators[2 * d], high, v.x, v.y);
        ptx::mma_k16(numerators[2 * d + 1], high, v.z, v.w);
        ptx::mma_k16(numerators[2 * d], low, v.x, v.y);
        ptx::mma_k16(numerators[2 * d + 1], low, v.z, v.w);
      }
    }
  }

  // Adds the sums of a row's four lanes.
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }
};

// The warps of the second half of positions (`gives`) hand their maxima, sums and numerators to
// the warps of the first half, which merge and normalise. `shared` holds kHeadDim / 2 + 4 values of each
// of 128 threads.
template <int kHeadDim>
__device__ __forceinline__ void block_merge(WarpAttention<kHeadDim>& mine, float* shared,
                                            bool gives) {
  constexpr int kValues = kHeadDim / 2;  // numerators of a thread
  float* slot = shared + threadIdx.x % 128;
  if (gives) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) slot[i * 128] = mine.numerators[i / 4][i % 4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      slot[(kValues + r) * 128] = mine.maximum[r];
      slot[(kValues + 2 + r) * 128] = mine.sum[r];
    }
  }
  __syncthreads();
  if (gives) return;
  float inverse[2], own[2], other[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float maximum = slot[(kValues + r) * 128];
    const float top = fmaxf(mine.maximum[r], maximum);
    own[r] = ptx::exp2_approx(mine.maximum[r] - top);
    other[r] = ptx::exp2_approx(maximum - top);
    inverse[r] = 1.0f / fmaf(mine.sum[r], own[r], slot[(kValues + 2 + r) * 128] * other[r]);
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const int r = i % 4 / 2;
    float& x = mine.numerators[i / 4][i % 4];
    x = fmaf(x, own[r], slot[i * 128] * other[r]) * inverse[r];
  }
}

// Loads the low plane of the block's queries. Rows past the end repeat the last one.
template <int kHeadDim>
__device__ __forceinline__ void block_load_query(const AttentionInput& in, int head, int first_row,
                                                 char* tile) {
  constexpr int kPieces = kHeadDim / 8, kRowsAtOnce = kTileThreads / kPieces;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kQueryRows / kRowsAtOnce; ++i) {
    const int row = i * kRowsAtOnce + thread / kPieces, chunk = thread % kPieces;
    const size_t from = static_cast<size_t>(min(first_row + row, in.rows - 1) * in.heads + head);
    *reinterpret_cast<uint4*>(tile + chunk_offset<kPieces>(row, chunk)) =
        reinterpret_cast<const uint4*>(in.query.low + from * kHeadDim)[chunk];
  }
}

template <class Kv>
__global__ void __launch_bounds__(kTileThreads, 1) attention_kernel(AttentionInput in, Kv kv) {
  constexpr int kHeadDim = Kv::kHeadDim, kBytes = kTileBytes<kHeadDim>;
  extern __shared__ __align__(128) char shared[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (in.heads / in.kv_heads);
  const int block_row = static_cast<int>(blockIdx.x) * kQueryRows;
  const int first_row = block_row + warp % 4 * 16;
  const int half = warp / 4 * kHalfKeys;
  // Number of positions that the block's last row and this warp's last row attend to.
  const int end = attended(in, min(block_row + kQueryRows, in.rows) - 1);
  const int warp_end = attended(in, min(first_row + 16, in.rows) - 1);
  char* low_query = shared + 4 * kBytes;
  auto key_tile = [&](int stage) { return shared + stage % 2 * (2 * kBytes); };
  auto value_tile = [&](int stage) { return key_tile(stage) + kBytes; };

  store_share<KvKind::kKey>(kv, key_tile(0), thread,
                            load_share<KvKind::kKey>(kv, in.layer, kv_head, 0, end, thread));
  store_share<KvKind::kValue>(kv, value_tile(0), thread,
                              load_share<KvKind::kValue>(kv, in.layer, kv_head, 0, end, thread));
  block_load_query<kHeadDim>(in, head, block_row, low_query);
  WarpAttention<kHeadDim> state;
  state.start(in, head, first_row, lane);
  __syncthreads();

  // Every 8 rows of the tile are permuted in the same way, so a warp's 16 rows can be addressed as
  // a tile of their own.
  const unsigned low = ptx::shared_address(low_query + warp % 4 * (16 * kHeadDim * 2));
  const int stages = (end + kTileKeys - 1) / kTileKeys;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    const int first = stage * kTileKeys, next = first + kTileKeys;
    const bool more = stage + 1 < stages, busy = first + half < warp_end && first_row < in.rows;
    TileShare<kHeadDim> share;
    float scores[4][4];
    if (more) share = load_share<KvKind::kKey>(kv, in.layer, kv_head, next, end, thread);
    if (busy) {
      state.score(low, ptx::shared_address(key_tile(stage)), half, lane, scores);
      state.weigh(scores, first + half, lane);
    }
    if (more) {
      store_share<KvKind::kKey>(kv, key_tile(stage + 1), thread, share);
      share = load_share<KvKind::kValue>(kv, in.layer, kv_head, next, end, thread);
    }
    if (busy) state.add_values(ptx::shared_address(value_tile(stage)), half, lane, scores);
    if (more) store_share<KvKind::kValue>(kv, value_tile(stage + 1), thread, share);
    __syncthreads();
  }

  state.finish_sums();
  block_merge(state, reinterpret_cast<float*>(shared), half != 0);
  if (half != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= in.rows) continue;
    const size_t at =
        static_cast<size_t>(row * in.heads + head) * kHeadDim + static_cast<size_t>(lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i) {
      store_split(in.out, at + i * 8, state.numerators[i][2 * r], state.numerators[i][2 * r + 1]);
    }
  }
}

}  // namespace mkbench::prefill
