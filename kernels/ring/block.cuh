// A block of the ring megakernel: the roles of its warps, its shared memory, its named barriers,
// and the split of activations into two bf16 planes that lets bf16 tensor cores multiply fp32
// vectors. held/layer.cuh and streamed/layer.cuh show roles and barriers in time.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/ptx_sm90.cuh"
#include "kernels/ring/params.h"

namespace mkbench::ring {

// Roles: warp 0 is the publisher, warp 1 the loader, warp 2 the statistics warp; warp 3 idles,
// because registers are reallocated by warpgroup (4 warps). Warps 4-19 are the consumers.
inline constexpr int kRoleWarps = 4;
inline constexpr int kThreads = (kRoleWarps + kConsumerWarps) * 32;
inline constexpr int kPublisherWarp = 0, kLoaderWarp = 1, kStatisticsWarp = 2;
inline constexpr int kRoleRegisters = 64, kConsumerRegisters = 104;
inline constexpr int kConsumerThreads = kConsumerWarps * 32;
inline constexpr int kOneMore = kConsumerThreads + 32;  // threads: consumers and a role warp
inline constexpr int kTwoRoles = 64;                    // threads: two role warps

// Named barriers: `who arrives -> who waits`, each always between the same roles. kPartials is two
// barriers, used in turn, one for each set of partial sums. One side arrives and the other waits,
// because compute-sanitizer's synccheck reports two roles as divergent if both wait, at different
// places in the code.
// The statistics warp may still read a layer's vectors while the consumers write the next layer's.
// Therefore Shared has two sets of them, by layer % 2, and the number of layers must be even.
enum Barrier : int {
  kPartials = 1,      // consumers' partial sums are written: consumers -> publisher
  kHeadVectors = 3,   // q, k, v are in shared memory: consumers -> statistics
  kTokenDone = 4,     // the next token is chosen: publisher -> consumers
  kConsumers = 5,     // the consumers wait for one another
  kStatistics = 6,    // Shared::statistics are written: statistics -> consumers
  kPartialsRead = 7,  // partial sums are read and published: publisher -> consumers
  kTokenSeen = 8,     // the next token is chosen: publisher -> statistics
};

// Distance in elements between two vectors of head_dim = 128 elements in shared memory: at 128, two
// heads that a warp reads together would lie on the same banks.
inline constexpr int kHeadStride = 160;
#ifdef __CUDA_ARCH__
template <typename L>
inline constexpr int kRingSlots = ring_slots<L>(__CUDA_ARCH__ / 100);
#else
template <typename L>
inline constexpr int kRingSlots = ring_slots<L>(9);
#endif

// A slot's barrier has one parity bit, which distinguishes two successive uses of the slot only: a
// warp may look at the barrier only after the copy of the previous use has arrived.
// A held shape's large ring has room for all slots of one fetch(): there a warp looks at several
// slots ahead and skips slots of the LM head. That is safe while at most ring_slots - 4 copies are
// in flight (most_head_copies() in params.h; checked by tests/kernels/test_ring_parity.cpp). In
// other rings every warp takes every slot of the LM head in order. K tiles that a warp skips have
// arrived before it takes V, because the barrier kConsumers lies between.
template <typename L>
inline constexpr bool kSmallRing = L::kHeld&& kRingSlots<L> < L::kGateUpSlots;

// Tiles of K and of V in a turn of attention, i.e. between two barriers. K of a whole turn must fit
// into the consumers' registers.
template <typename L, bool kSplit>
inline constexpr int kTilesPerTurn = kSplit && !kSmallRing<L> ? 4 : 2;

// Indices of k and of v among the vectors of a SplitPlane; the q vectors of the heads come first.
template <typename L>
inline constexpr int kKey = L::kHeads;
template <typename L>
inline constexpr int kValue = L::kHeads + 1;
// fp32 q (of each head), k and v as two bf16 planes: x = high + low, to 16 bits of mantissa.
template <typename L>
struct SplitPlane {
  unsigned short high[L::kVectors * kHeadStride];
  unsigned short low[L::kVectors * kHeadStride];
};

// Values that attention uses for a pair of query heads; each of its lanes has one pair at a time.
struct Statistics {
  // Factor from dot product to log2 units, and the reference R of the exponents.
  float scale0, reference0, scale1, reference1;
  float current0, current1;  // score of the current position minus the reference
  int slow;                  // 1: the reference is not safe, attention has to find the maximum
  int pad;
};

template <typename L>
struct Shared {
  alignas(16) float partials[2][L::kPartialRows][20];  // [set][row][warp], 20: no bank conflicts
  alignas(16) float squares[2][kConsumerWarps];        // [set][warp]: sums of h^2 for RMSNorm
  // A warp's input. Held: the high plane of its 64 columns, then their low plane. Streamed: for each
  // step of 16 columns their high plane, then their low plane.
  alignas(16) unsigned activations[kConsumerWarps][L::kInputWords];
  union {
    // A operands of attention's values: [turn % 2][high, low plane][pair of heads][warp][j][register].
    alignas(16) unsigned exponentials[2][2][L::kHeadPairs][kConsumerWarps][4][4];
    alignas(16) float head_input[L::kHeld ? L::kHidden : 1];  // LM head: h times norm weight
  };
  alignas(16) float denominators[L::kHeads][kConsumerWarps];
  // Slow path, per pair of heads, [turn % 2]: maxima of this turn by warp, and of all turns up to it.
  alignas(16) float2 maxima[2][L::kHeadPairs][kConsumerWarps];
  float2 running[2][L::kHeadPairs];
  alignas(16) SplitPlane<L> rotated[2];  // [layer % 2] q, k after norm weight and RoPE, v
  alignas(16) SplitPlane<L> raw[2];      // [layer % 2] q, k, v before norm and RoPE
  alignas(16) Statistics statistics[L::kHeadPairs];
  // Last values that this block has seen of the accumulators attention_out and mlp_out.
  alignas(16) ulonglong2 seen[2][L::kHidden / 2];
  float2 residual[L::kHidden / 2];  // residual stream, in pairs of elements
  float key_maxima[kMaxLayers];     // [layer] largest |k| of the group's kv head
  alignas(8) unsigned long long full[kMostRingSlots], empty[kMostRingSlots];
  int token;               // next input id; -1 ends the launch
  volatile int rows_seen;  // this many steps' KV rows are visible to the loader's copies
  volatile int ended;      // 1: no step follows this one
};

// A block's dynamic shared memory: the ring, then Shared.
template <typename L>
MKBENCH_HD constexpr int shared_bytes(int compute_major) {
  static_assert(sizeof(Shared<L>) <= L::kStagingBytes, "Shared must fit beside the ring");
  return ring_slots<L>(compute_major) * kSlotBytes + static_cast<int>(sizeof(Shared<L>));
}

// A block's number in the order of groups, from which its group and its place in the group follow;
// kept in one register.
struct Block {
  int index;  // place_of(blockIdx)
  __device__ __forceinline__ int group() const { return index / kMembers; }
  __device__ __forceinline__ int member() const { return index % kMembers; }
};

__device__ __forceinline__ Block this_block() { return {place_of(static_cast<int>(blockIdx.x))}; }

// A consumer thread's warp (0-15) and lane (0-31). `row` = lane / 4 and `j` = lane % 4 place it in
// the fragments of mma. Each phase calls consumer_lane(), which hides the thread's number from the
// compiler: else it computes the addresses of all phases ahead of the layer loop and spills them.
struct Lane {
  int warp, lane, row, j;
};

__device__ __forceinline__ Lane consumer_lane() {
  int t = static_cast<int>(threadIdx.x) - kRoleWarps * 32;
  asm volatile("" : "+r"(t));
  return {t >> 5, t & 31, (t & 31) >> 2, t & 3};
}

// A copy of x about which the optimiser can assume nothing.
template <typename T>
__device__ __forceinline__ T opaque(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// The rounding errors of `pair` = bf16_pair(a, b), as a pair: the low plane.
__device__ __forceinline__ unsigned bf16_rest(float a, float b, unsigned pair) {
  return ptx::bf16_pair(a - low_bf16(pair), b - high_bf16(pair));
}

__device__ __forceinline__ float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(~0u, x, mask);
}

// The j-th of four values. An array that is indexed at run time would lie in local memory.
__device__ __forceinline__ float select4(int j, float a, float b, float c, float d) {
  const float low = (j & 1) != 0 ? b : a, high = (j & 1) != 0 ? d : c;
  return (j & 2) != 0 ? high : low;
}

// The sum of squares that the 16 consumer warps left in set `turn`.
template <typename L>
__device__ __forceinline__ float square_sum(const Shared<L>& s, int turn) {
  const float4* q = reinterpret_cast<const float4*>(s.squares[turn]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += (q[i].x + q[i].y) + (q[i].z + q[i].w);
  return sum;
}

// 1 / rms of a vector from its sum of squares: RMSNorm's scale, applied after the dot product.
template <typename L>
__device__ __forceinline__ float norm_scale(const LaunchParams& p, float squares) {
  return rsqrtf(squares * (1.0f / L::kHidden) + p.eps);
}

// B operands of a warp's 64 columns. The spare MMA columns carry the low-order bf16 plane: column n
// of B is the high plane where n is even and the low plane where n is odd, so one mma multiplies
// both, and columns 2j and 2j + 1 of its result add up to the fp32 product. A lane holds the 16
// columns from 16 j on; the operands of k step i are words 2 (i % 2) and 2 (i % 2) + 1 of b[i / 2].
template <typename L>
__device__ __forceinline__ void warp_activations(const Lane& me, Shared<L>& s, float x0, float x1,
                                                 uint4 (&b)[2]) {
  unsigned* high = s.activations[me.warp];
  unsigned* low = high + 32;
  const unsigned pair = ptx::bf16_pair(x0, x1);
  high[me.lane] = pair;
  low[me.lane] = bf16_rest(x0, x1, pair);
  __syncwarp();
  const uint4* q = reinterpret_cast<const uint4*>((me.row & 1) != 0 ? low : high) + 2 * me.j;
  b[0] = q[0];
  b[1] = q[1];
  __syncwarp();
}

}  // namespace mkbench::ring
