// PTX instructions that need sm_90, each in one function: mbarriers, bulk copies, register
// reallocation; and tensor-core instructions and 128-bit accesses that only kernels for sm_90 and
// later use. Includes ptx_sm80.cuh.
#pragma once

#include "kernels/ptx_sm80.cuh"

namespace mkbench::ptx {

// --- Programmatic dependent launch. In a kernel that was launched without it, neither does anything.

// Lets the kernel that was launched after this one begin, once all blocks have called this or ended.
__device__ __forceinline__ void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel that was launched before this one has ended and its stores are visible. Where all blocks of
// all kernels call this, that holds for all kernels before.
__device__ __forceinline__ void wait_for_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// --- mbarriers (addresses come from shared_address())

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copies that will complete on them.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Arrives once and adds `bytes`, which copies will bring, to what the barrier waits for.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Whether the phase of `parity` is over; may suspend the thread for a while first.
__device__ __forceinline__ bool barrier_try_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{.reg .pred q; mbarrier.try_wait.parity.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Whether the phase of `parity` is over, without suspending the thread.
__device__ __forceinline__ bool barrier_test_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{.reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], %2; selp.u32 %0, 1, 0, q;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// --- bulk copies

// The L2 policy for bytes that are read once a token.
__device__ __forceinline__ unsigned long long evict_first_policy() {
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies from global to shared memory; `bytes` must be a multiple of 16. Completes on `barrier`.
__device__ __forceinline__ void bulk_copy(unsigned to, const void* from, unsigned bytes,
                                          unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Orders this thread's ordinary accesses against bulk copies.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

// --- named barriers of a block; kThreads counts the threads that arrive and those that wait

template <int kThreads>
__device__ __forceinline__ void named_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

template <int kThreads>
__device__ __forceinline__ void named_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// --- registers

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Ends the calling thread.
__device__ __forceinline__ void exit_thread() {
  asm volatile("exit;");
  __builtin_unreachable();
}

// --- exchange: relaxed accesses at GPU scope; 16 bytes are single-copy atomic

__device__ __forceinline__ void store_relaxed(unsigned* p, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

__device__ __forceinline__ uint2 load_relaxed2(const unsigned* p) {
  uint2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ ulonglong2 load_relaxed2(const unsigned long long* p) {
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.x), "=l"(v.y)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed16(unsigned* p, uint4 v) {
  const unsigned long long low = v.x | static_cast<unsigned long long>(v.y) << 32;
  const unsigned long long high = v.z | static_cast<unsigned long long>(v.w) << 32;
  asm volatile("{.reg .b128 r; mov.b128 r, {%1, %2}; st.relaxed.gpu.global.b128 [%0], r;}" ::"l"(p),
               "l"(low), "l"(high)
               : "memory");
}

__device__ __forceinline__ uint4 load_relaxed16(const unsigned* p) {
  unsigned long long low, high;
  asm volatile("{.reg .b128 r; ld.relaxed.gpu.global.b128 r, [%2]; mov.b128 {%0, %1}, r;}"
               : "=l"(low), "=l"(high)
               : "l"(p)
               : "memory");
  return make_uint4(static_cast<unsigned>(low), static_cast<unsigned>(low >> 32),
                    static_cast<unsigned>(high), static_cast<unsigned>(high >> 32));
}

__device__ __forceinline__ void add_relaxed(unsigned long long* p, unsigned long long value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

// --- tensor cores

// d = a * b, with operands as in mma_k16().
__device__ __forceinline__ void mma_k16_first(float (&d)[4], uint4 a, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(0.0f));
}

// d (16 x 8, fp32) += a (16 x 8, bf16) * b (8 x 8, bf16).
__device__ __forceinline__ void mma_k8(float (&d)[4], unsigned a0, unsigned a1, unsigned b0) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// Transposes an 8 x 8 tile of 16-bit elements held as mma operands.
__device__ __forceinline__ unsigned transpose8(unsigned a) {
  unsigned t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(a));
  return t;
}

// --- arithmetic

__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The low 32 bits of this multiprocessor's clock.
__device__ __forceinline__ unsigned sm_cycles_low() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}

}  // namespace mkbench::ptx
