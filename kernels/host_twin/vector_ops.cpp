#include "kernels/host_twin/vector_ops.h"

#include <cstring>

namespace mkbench::host_twin {
namespace {

// GCC's vector types: one source for AVX2, for SSE2 (each 32-byte vector becomes two) and for other
// processors.
using Half8 = uint16_t __attribute__((vector_size(16)));
using Word8 = uint32_t __attribute__((vector_size(32)));
using Float8 = float __attribute__((vector_size(32)));
constexpr int kLanes = 8;
constexpr int kAccumulators = 4;  // independent sums, which hide the latency of an addition

#define MKBENCH_ALWAYS_INLINE inline __attribute__((always_inline))

MKBENCH_ALWAYS_INLINE void load(const Bf16* from, Float8* to) {
  Half8 half;
  std::memcpy(&half, from, sizeof half);  // a row may be aligned to 2 bytes only
  const Word8 word = __builtin_convertvector(half, Word8) << 16;
  std::memcpy(to, &word, sizeof *to);
}

MKBENCH_ALWAYS_INLINE void load(const float* from, Float8* to) {
  std::memcpy(to, from, sizeof *to);
}

MKBENCH_ALWAYS_INLINE float dot(const Bf16* w, const float* x, int cols) {
  Float8 sum[kAccumulators] = {};
  int c = 0;
  for (; c + kAccumulators * kLanes <= cols; c += kAccumulators * kLanes) {
    for (int a = 0; a < kAccumulators; ++a) {
      Float8 wv, xv;
      load(w + c + a * kLanes, &wv);
      load(x + c + a * kLanes, &xv);
      sum[a] += wv * xv;
    }
  }
  const Float8 all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  float total = ((all[0] + all[4]) + (all[1] + all[5])) + ((all[2] + all[6]) + (all[3] + all[7]));
  for (; c < cols; ++c) total += to_float(w[c]) * x[c];
  return total;
}

MKBENCH_ALWAYS_INLINE void matvec_body(const Bf16* w, int rows, int cols, const float* x,
                                       float* y) {
  for (int r = 0; r < rows; ++r) y[r] = dot(w + static_cast<size_t>(r) * cols, x, cols);
}

MKBENCH_ALWAYS_INLINE void weighted_sum_body(const Bf16* w, int rows, int cols, const float* p,
                                             float* acc) {
  int c = 0;
  // The sums of a stripe of columns stay in registers over all rows.
  for (; c + kAccumulators * kLanes <= cols; c += kAccumulators * kLanes) {
    Float8 sum[kAccumulators];
    for (int a = 0; a < kAccumulators; ++a) load(acc + c + a * kLanes, &sum[a]);
    for (int r = 0; r < rows; ++r) {
      const Bf16* row = w + static_cast<size_t>(r) * cols + c;
      for (int a = 0; a < kAccumulators; ++a) {
        Float8 wv;
        load(row + a * kLanes, &wv);
        sum[a] += wv * p[r];
      }
    }
    for (int a = 0; a < kAccumulators; ++a) std::memcpy(acc + c + a * kLanes, &sum[a], 4 * kLanes);
  }
  for (; c < cols; ++c) {
    for (int r = 0; r < rows; ++r) acc[c] += to_float(w[static_cast<size_t>(r) * cols + c]) * p[r];
  }
}

void matvec_portable(const Bf16* w, int rows, int cols, const float* x, float* y) {
  matvec_body(w, rows, cols, x, y);
}
void weighted_sum_portable(const Bf16* w, int rows, int cols, const float* p, float* acc) {
  weighted_sum_body(w, rows, cols, p, acc);
}

#if defined(__x86_64__)
// target_clones would not do: its ifunc resolvers run before a sanitizer has started.
__attribute__((target("avx2,fma"))) void matvec_avx2(const Bf16* w, int rows, int cols,
                                                     const float* x, float* y) {
  matvec_body(w, rows, cols, x, y);
}
__attribute__((target("avx2,fma"))) void weighted_sum_avx2(const Bf16* w, int rows, int cols,
                                                           const float* p, float* acc) {
  weighted_sum_body(w, rows, cols, p, acc);
}
#endif

VectorOps choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {matvec_avx2, weighted_sum_avx2};
  }
#endif
  return portable_vector_ops();
}

}  // namespace

const VectorOps& portable_vector_ops() {
  static constexpr VectorOps ops{matvec_portable, weighted_sum_portable};
  return ops;
}

const VectorOps& vector_ops() {
  static const VectorOps ops = choose();
  return ops;
}

}  // namespace mkbench::host_twin
