// A block of the ring megakernel: its warps' roles, its shared memory, its named barriers, and the
// splitting of activations that lets bf16 tensor cores multiply fp32 vectors.
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/ptx_sm90.cuh"
#include "kernels/ring/params.h"

namespace mkbench::ring {

// Roles: warps 0-3 publish, load, keep statistics and idle (a warpgroup, because registers are
// reallocated by warpgroup); warps 4-19 consume weights.
inline constexpr int kRoleWarps = 4;
inline constexpr int kThreads = (kRoleWarps + kConsumerWarps) * 32;
inline constexpr int kPublisherWarp = 0, kLoaderWarp = 1, kStatisticsWarp = 2;
inline constexpr int kRoleRegisters = 64, kConsumerRegisters = 104;
inline constexpr int kConsumerThreads = kConsumerWarps * 32;
inline constexpr int kOneMore = kConsumerThreads + 32;  // consumers and one role warp
inline constexpr int kTwoRoles = 64;                    // one role warp and another

// Named barriers, each for the same parties every time; kPartials is two barriers, used in turn.
// One side arrives and the other waits: synccheck would report roles that wait for each other at
// two places of the code as divergent. The statistics warp may still read a layer's vectors while
// the consumers write the next layer's: Shared has two sets, so the number of layers must be even.
enum Barrier : int {
  kPartials = 1,      // consumers' partial sums are written: consumers -> publisher
  kHeadVectors = 3,   // q, k, v are in shared memory: consumers -> statistics
  kTokenDone = 4,     // the next token is chosen: publisher -> consumers
  kConsumers = 5,     // among consumers
  kStatistics = 6,    // Shared::statistics are written: statistics -> consumers
  kPartialsRead = 7,  // partial sums are read and handed on: publisher -> consumers
  kTokenSeen = 8,     // the next token is chosen: publisher -> statistics
};

// Elements from one vector of a head to the next in shared memory: 128 would put two heads that a
// warp reads together on the same banks.
inline constexpr int kHeadStride = 160;
enum HeadVector : int { kQuery0, kQuery1, kKey, kValue, kHeadVectors_ };

#ifdef __CUDA_ARCH__
inline constexpr int kRingSlots = ring_slots(__CUDA_ARCH__ / 100);
#else
inline constexpr int kRingSlots = kMostRingSlots;
#endif

// Parity tells two turns of a slot apart, not more: a warp may look at a slot's barrier only when
// the copy of the turn before has arrived there. In a ring that holds a whole fetch, warps look
// ahead and skip slots of the LM head; that holds as long as at most ring_slots - 4 copies are in
// flight there (tuning.h). In a small ring they take every slot of the LM head in order. The K
// tiles that a warp skips have arrived before it takes V: kConsumers stands between.
inline constexpr bool kSmallRing = kRingSlots < kGateUpSlots;

// K and V tiles that a block attends to between two barriers: K of a turn lies in registers.
template <bool kSplit>
inline constexpr int kTilesPerTurn = kSplit && !kSmallRing ? 4 : 2;
static_assert(!kSmallRing || kRingSlots > kTilesPerTurn<true>);

// fp32 vectors as two bf16 planes: x = high + low to 16 bits of mantissa.
struct SplitPlane {
  unsigned short high[kHeadVectors_ * kHeadStride];
  unsigned short low[kHeadVectors_ * kHeadStride];
};

struct Statistics {
  // By query head: factor from dot product to log2 units, and the exponent's reference.
  float scale0, reference0, scale1, reference1;
  float current0, current1;  // score of the current position, less the reference
  int slow;                  // the reference is not safe: find the maximum
  int pad;
};

struct Shared {
  alignas(16) float partials[2][kOutRows][20];              // [row][warp], 20: no bank conflicts
  alignas(16) float squares[2][kConsumerWarps];             // RMSNorm
  alignas(16) unsigned activations[kConsumerWarps][2][32];  // a warp's 64 columns, high and low
  union {
    alignas(16) unsigned exponentials[2][2][kConsumerWarps][4][4];  // [turn][high, low]: A operands
    alignas(16) float head_input[kHidden];                          // LM head
  };
  alignas(16) float denominators[2][kConsumerWarps];
  alignas(16) float2 maxima[2][kConsumerWarps];  // slow path, heads 0 and 1: [turn][warp]
  float2 running[2];                             // and of all turns so far: [turn]
  alignas(16) SplitPlane rotated[2];             // [layer % 2] q, k after RoPE, v
  alignas(16) SplitPlane raw[2];                 // q, k before norm and RoPE
  alignas(16) Statistics statistics;
  alignas(16) ulonglong2 seen[2][kConsumerThreads];  // exchange: last values of the accumulators
  float2 residual[kConsumerThreads];                 // two elements a consumer thread
  float key_maxima[kMaxLayers];                      // largest |k| of this kv head
  alignas(8) unsigned long long full[kMostRingSlots], empty[kMostRingSlots];
  int token;               // next input id; -1 ends the launch
  volatile int rows_seen;  // KV rows of this many steps are visible to the loader's copies
  volatile int ended;      // 1: no step follows
};

// A block's dynamic shared memory: the ring, then Shared.
MKBENCH_HD constexpr int shared_bytes(int compute_major) {
  return ring_slots(compute_major) * kSlotBytes + static_cast<int>(sizeof(Shared));
}
static_assert(shared_bytes(9) <= 227 * 1024, "sm_90, sm_100");
static_assert(shared_bytes(12) <= 99 * 1024, "sm_120");

// A block's number among all, its group and its place in the group; one register.
struct Block {
  int index;  // group * kMembers + member
  __device__ __forceinline__ int group() const { return index / kMembers; }
  __device__ __forceinline__ int member() const { return index % kMembers; }
};

__device__ __forceinline__ Block this_block() {
  const int b = static_cast<int>(blockIdx.x);
  return {group_of(b) * kMembers + member_of(b)};
}

// Who a thread is among its kind. `row` and `j` are its coordinates in mma's fragments. Asked anew
// in each phase through an opaque copy, or the compiler computes all phases' addresses ahead of the
// layer loop and spills them.
struct Lane {
  int warp, lane, row, j;
};

__device__ __forceinline__ Lane consumer_lane() {
  int t = static_cast<int>(threadIdx.x) - kRoleWarps * 32;
  asm volatile("" : "+r"(t));
  return {t >> 5, t & 31, (t & 31) >> 2, t & 3};
}

template <typename T>
__device__ __forceinline__ T opaque(T x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ __forceinline__ float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(unsigned pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// What `pair` = bf16_pair(a, b) lost, as a pair.
__device__ __forceinline__ unsigned bf16_rest(float a, float b, unsigned pair) {
  return ptx::bf16_pair(a - low_bf16(pair), b - high_bf16(pair));
}

__device__ __forceinline__ float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(~0u, x, mask);
}

// One of four values by j, without a runtime-indexed array (that would be local memory).
__device__ __forceinline__ float select4(int j, float a, float b, float c, float d) {
  const float low = (j & 1) != 0 ? b : a, high = (j & 1) != 0 ? d : c;
  return (j & 2) != 0 ? high : low;
}

// B operands of a warp's 64 columns: mma's column n takes the high plane where n is even, the low
// one where it is odd, so that one mma multiplies both and columns 2j and 2j + 1 of the result add
// up to the fp32 product. Lane j of a row holds 16 neighbouring columns: k step i is {b[i / 2]}'s
// words 2 * (i % 2) and 2 * (i % 2) + 1.
__device__ __forceinline__ void warp_activations(const Lane& me, Shared& s, float x0, float x1,
                                                 uint4 (&b)[2]) {
  unsigned* high = s.activations[me.warp][0];
  unsigned* low = s.activations[me.warp][1];
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
