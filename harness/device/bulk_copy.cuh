// Bulk copies from global to shared memory and the barriers that count their bytes (PTX, sm_90 and
// later). The copies of kernels/ptx_sm90.cuh are not used here, because they hint L2 to evict what
// they bring: the measured ceiling would then depend on a choice of the kernels that it judges.
#pragma once

#include <cstdint>

namespace mkbench {

// L2 policies of a pattern that asks L2 to keep a part: for that part, and for all else.
struct KeepPolicies {
  uint64_t keep, pass;
};
__device__ __forceinline__ KeepPolicies keep_policies() {
  KeepPolicies policies;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policies.keep));
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policies.pass));
  return policies;
}

}  // namespace mkbench

#if __CUDA_ARCH__ >= 900

namespace mkbench {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives once and makes the barrier wait for `bytes` more.
__device__ __forceinline__ void barrier_expect_bytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void bulk_copy_to_shared(void* to, const void* from, uint32_t bytes,
                                                    uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void bulk_copy_to_shared(void* to, const void* from, uint32_t bytes,
                                                    uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

__device__ __forceinline__ uint64_t global_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Waits until the barrier's phase of `parity` completes; false if it has not after about a second.
__device__ __forceinline__ bool barrier_wait_bounded(uint64_t* barrier, uint32_t parity) {
  constexpr uint64_t kLimitNs = 1'000'000'000;
  constexpr uint32_t kPollsPerClock = 256;  // %globaltimer is slow to read
  uint64_t start = 0;
  for (uint32_t polls = 0;; ++polls) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    if (done != 0) return true;
    if (polls % kPollsPerClock != 0) continue;
    const uint64_t now = global_ns();
    if (start == 0) start = now;
    if (now - start > kLimitNs) return false;
  }
}

}  // namespace mkbench

#endif
