// The KV write: the new row of the KV cache, and its announcement to the blocks that will read it.
//   kv[layer][kv head][position] = {bf16(norm_rope(k)), bf16(v)}
// Reads   Shared::rotated (q, k after norm weight and RoPE, v: two bf16 planes).
// Writes  row `position` of kv in every layer; rows_written and Shared::rows_seen once a step.
// The statistics warp (statistics.cuh) calls both functions, because it is off the critical path and
// the consumers are on it. Member position % kMembers of a group writes all layers of a step.
#pragma once

#include "kernels/ring/exchange.cuh"

namespace mkbench::ring {

// Writes row `position` of this kv head in one layer into its K tile and its V tile: K times
// 1 / rms(k), rounded to bf16; V rounded to bf16, which is its high plane.
template <typename L>
__device__ __forceinline__ void warp_write_kv_row(const LaunchParams& p,
                                                  const SplitPlane<L>& rotated, char* head,
                                                  int position, float key_scale, int lane) {
  const int d = 4 * lane, row = tile_row(position);
  auto widen2 = [&](int v, int i) {
    const unsigned h = *reinterpret_cast<const unsigned*>(rotated.high + v * kHeadStride + d + i);
    const unsigned l = *reinterpret_cast<const unsigned*>(rotated.low + v * kHeadStride + d + i);
    return make_float2(low_bf16(h) + low_bf16(l), high_bf16(h) + high_bf16(l));
  };
  char* k = head + tile_offset(position / kRoundPositions, tile_member(position), 0);
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float2 x = widen2(kKey<L>, i);
    *reinterpret_cast<unsigned*>(k + k_offset(row, d + i)) =
        ptx::bf16_pair(x.x * key_scale, x.y * key_scale);
  }
  char* v = head + tile_offset(position / kRoundPositions, tile_member(position), 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<unsigned short*>(v + v_offset(row, d + i)) =
        rotated.high[kValue<L> * kHeadStride + d + i];
  }
  // Orders these stores before the bulk copies of other blocks, which start only after the step's
  // word in rows_written.
  ptx::proxy_fence();
  __threadfence();
}

// End of a step: the writer announces its rows; every block of the group waits for the word and
// then lets its own loader copy the rows (Shared::rows_seen).
template <typename L, RingAblation kAblation>
__device__ __forceinline__ void warp_pass_kv_rows(const LaunchParams& p, Shared<L>& s,
                                                  const Block& block, int step, int lane) {
  unsigned* word = p.rows_written + block.group() * kMembers + (p.position + step) % kMembers;
  const unsigned epoch = static_cast<unsigned>(step) + 1;
  __syncwarp();
  if (lane != 0) return;
  __threadfence();  // orders the rows of all lanes before the word
  if (block.member() == (p.position + step) % kMembers) ptx::store_relaxed(word, epoch);
  lane_wait_until(p, {Phase::kAttention, p.layers, p.position + step}, epoch, [&](unsigned& seen) {
    seen = ptx::load_acquire(word);
    return seen == epoch || kAblation == RingAblation::kNoWaits;
  });
  __threadfence_block();
  s.rows_seen = step + 1;
}

}  // namespace mkbench::ring
