// One interface to the two KV layouts, plain's and ring's: store_pair() writes elements of a row,
// load_share() and store_share() bring 64 positions of one head into a tile of shared memory,
// (64, head_dim) row-major in the order of chunk_offset().
#pragma once

#include "kernels/prefill/inputs.h"
#include "kernels/prefill/split.cuh"
#include "kernels/prefill/tiles.h"
#include "kernels/ring/layout.h"

namespace mkbench::prefill {

inline constexpr int kTileKeys = 64;
template <int kHeadDim>
inline constexpr int kTileBytes = kTileKeys* kHeadDim * 2;
inline constexpr int kTileThreads = 256;

enum class KvKind : int { kKey, kValue };

// A thread's share of a tile, in registers between load and store.
template <int kHeadDim>
struct TileShare {
  static constexpr int kPieces = kTileBytes<kHeadDim> / kTileThreads / 16;
  uint4 piece[kPieces];
};

// --- plain: rows of kHeadDim elements

template <int kHeadDim_>
struct PlainRows : PlainKv {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kRowPieces = kHeadDim / 8;
  // Rows that the block's threads load at once, each thread one piece of a row.
  static constexpr int kKeysAtOnce = kTileThreads / kRowPieces;
};

template <KvKind kKind, int kHeadDim>
__device__ __forceinline__ unsigned short* row_of(const PlainRows<kHeadDim>& kv, int layer,
                                                  int head, int position) {
  unsigned short* cache = kKind == KvKind::kKey ? kv.k : kv.v;
  const size_t slab = static_cast<size_t>(layer * kv.kv_heads + head);
  return cache + (slab * kv.max_context + position) * kHeadDim;
}

// Stores elements d and d + 1, d even.
template <KvKind kKind, int kHeadDim>
__device__ __forceinline__ void store_pair(const PlainRows<kHeadDim>& kv, int layer, int head,
                                           int position, int d, unsigned pair) {
  *reinterpret_cast<unsigned*>(row_of<kKind>(kv, layer, head, position) + d) = pair;
}

// Positions from `end` on are not read but become zeros: a NaN there would survive a zero weight.
template <KvKind kKind, int kHeadDim>
__device__ __forceinline__ TileShare<kHeadDim> load_share(const PlainRows<kHeadDim>& kv, int layer,
                                                          int head, int first, int end,
                                                          int thread) {
  using Rows = PlainRows<kHeadDim>;
  const unsigned short* from = row_of<kKind>(kv, layer, head, first);
  TileShare<kHeadDim> share;
#pragma unroll
  for (int i = 0; i < TileShare<kHeadDim>::kPieces; ++i) {
    const int key = i * Rows::kKeysAtOnce + thread / Rows::kRowPieces;
    share.piece[i] = make_uint4(0, 0, 0, 0);
    if (first + key < end) {
      share.piece[i] =
          *reinterpret_cast<const uint4*>(from + key * kHeadDim + thread % Rows::kRowPieces * 8);
    }
  }
  return share;
}

template <KvKind kKind, int kHeadDim>
__device__ __forceinline__ void store_share(const PlainRows<kHeadDim>&, char* tile, int thread,
                                            const TileShare<kHeadDim>& share) {
  using Rows = PlainRows<kHeadDim>;
#pragma unroll
  for (int i = 0; i < TileShare<kHeadDim>::kPieces; ++i) {
    const int key = i * Rows::kKeysAtOnce + thread / Rows::kRowPieces;
    *reinterpret_cast<uint4*>(
        tile + chunk_offset<Rows::kRowPieces>(key, thread % Rows::kRowPieces)) = share.piece[i];
  }
}

// --- ring: half tiles of 32 neighbouring positions, in pieces of 16 bytes, see ring::half_index().
// A piece of K that begins with (row, d) has four words: dimensions d and d + 1 of row and of
// row + 8, then d + 2 and d + 3 of row and of row + 8. Word w of a piece of V that begins with
// (row, d) is dimension d of rows row + 8 w and row + 8 w + 1.

inline constexpr int kHalfKeys = ring::kHalfTileRows;
using RingShare = TileShare<RingKv::kHeadDim>;
static_assert(kTileKeys == 2 * kHalfKeys && RingKv::kHeadDim == ring::kHeadDim);

__device__ __forceinline__ char* head_of(const RingKv& kv, int layer, int head) {
  return kv.kv +
         static_cast<size_t>(layer * kv.kv_heads + head) * ring::kv_head_bytes(kv.max_context);
}

template <KvKind kKind>
__device__ __forceinline__ void store_pair(const RingKv& kv, int layer, int head, int position,
                                           int d, unsigned pair) {
  char* to = head_of(kv, layer, head) + ring::kv_offset(position, d, static_cast<int>(kKind));
  // Neighbouring dimensions lie side by side in K, but not in V.
  if (kKind == KvKind::kKey) {
    *reinterpret_cast<unsigned*>(to) = pair;
  } else {
    constexpr int kNextDimension = ring::v_offset(0, 1) - ring::v_offset(0, 0);
    *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(pair);
    *reinterpret_cast<unsigned short*>(to + kNextDimension) =
        static_cast<unsigned short>(pair >> 16);
  }
}

// The i-th piece (0 or 1) of a half tile that a thread takes. In V, a thread's two pieces are
// neighbouring dimensions.
template <KvKind kKind>
__device__ __forceinline__ int ring_piece(int thread, int i) {
  return kKind == KvKind::kKey ? i * kTileThreads + thread : thread / 4 * 8 + i * 4 + thread % 4;
}

// Zeroes the positions of a pair that lie past the end: a piece of V holds 8 positions.
__device__ __forceinline__ unsigned keep_before(unsigned pair, int position, int end) {
  const unsigned mask = (position < end ? 0xffffu : 0u) | (position + 1 < end ? 0xffff0000u : 0u);
  return pair & mask;
}

template <KvKind kKind>
__device__ __forceinline__ RingShare load_share(const RingKv& kv, int layer, int head, int first,
                                                int end, int thread) {
  const char* base = head_of(kv, layer, head);
  RingShare share;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int start = first + half * kHalfKeys;
    const char* from = base + ring::kv_offset(start, 0, static_cast<int>(kKind));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int piece = ring_piece<kKind>(thread, i);
      uint4 w = make_uint4(0, 0, 0, 0);
      if (start < end) w = *reinterpret_cast<const uint4*>(from + piece * 16);
      if (kKind == KvKind::kValue) {  // for K, WarpAttention::weigh() masks the scores instead
        const int row = start + ring::half_index(1, 8 * piece).row;
        w.x = keep_before(w.x, row, end), w.y = keep_before(w.y, row + 8, end);
        w.z = keep_before(w.z, row + 16, end), w.w = keep_before(w.w, row + 24, end);
      }
      share.piece[half * 2 + i] = w;
    }
  }
  return share;
}

// Bytes from the tile's start to element (key, d), d a multiple of the width of the access.
__device__ __forceinline__ int element_offset(int key, int d) {
  return chunk_offset<16>(key, d / 8) + d % 8 * 2;
}

template <KvKind kKind>
__device__ __forceinline__ void store_share(const RingKv&, char* tile, int thread,
                                            const RingShare& share) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 a = share.piece[half * 2], b = share.piece[half * 2 + 1];
    if (kKind == KvKind::kKey) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const ring::HalfIndex at = ring::half_index(0, 8 * ring_piece<kKind>(thread, i));
        const uint4 w = i == 0 ? a : b;
        const int key = half * kHalfKeys + at.row;
        *reinterpret_cast<uint2*>(tile + element_offset(key, at.d)) = make_uint2(w.x, w.z);
        *reinterpret_cast<uint2*>(tile + element_offset(key + 8, at.d)) = make_uint2(w.y, w.w);
      }
    } else {  // a is dimension d and b dimension d + 1, in pairs of positions: 2 x 2 transposes
      const ring::HalfIndex at = ring::half_index(1, 8 * ring_piece<kKind>(thread, 0));
      const unsigned low[4] = {a.x, a.y, a.z, a.w}, high[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int key = half * kHalfKeys + at.row + 8 * w;
        *reinterpret_cast<unsigned*>(tile + element_offset(key, at.d)) =
            __byte_perm(low[w], high[w], 0x5410);
        *reinterpret_cast<unsigned*>(tile + element_offset(key + 1, at.d)) =
            __byte_perm(low[w], high[w], 0x7632);
      }
    }
  }
}

}  // namespace mkbench::prefill
