// The PTX instructions that all kernels use, each in one function. Instructions that need sm_80 or
// sm_90 are in ptx_sm80.cuh and ptx_sm90.cuh.
#pragma once

#include "kernels/partition.h"

namespace mkbench::ptx {

// Loads 16 bytes of read-only weights, past L1, because each byte is used once a token.
// Never use this for memory that the launch writes: .nc may return a stale value.
__device__ __forceinline__ uint4 load_weights(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Loads of values that other blocks wrote in this launch: from L2, where their stores are, never
// from this multiprocessor's L1. They are volatile and have a memory clobber, so that the compiler
// does not move them above the wait that makes the value valid.
__device__ __forceinline__ float load_l2(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ float2 load_l2(const float2* p) {
  float2 v;
  asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ float4 load_l2(const float4* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ uint4 load_l2(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

__device__ __forceinline__ unsigned long long load_l2(const unsigned long long* p) {
  unsigned long long v;
  asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}

// Adds to a counter with release semantics: everything that this thread has written or observed is
// visible to a thread that acquires the count.
__device__ __forceinline__ void add_release(unsigned* p, unsigned value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ __forceinline__ unsigned load_relaxed(const unsigned* p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// Stores to host-mapped memory, so that the host sees the value while the kernel runs.
__device__ __forceinline__ void store_system(int* p, int value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

// Nanoseconds of a clock that all multiprocessors share. Its step is coarse (32 ns to 1 us).
__device__ __forceinline__ unsigned long long global_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Cycles of this multiprocessor's clock.
__device__ __forceinline__ unsigned long long sm_cycles() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
  return t;
}

// sm_cycles(), read only after global_ns() has delivered `ns`, which is some time after its issue.
__device__ __forceinline__ unsigned long long sm_cycles_after(unsigned long long ns) {
  unsigned long long t = 0;
  asm volatile(
      "{\n\t.reg .pred there;\n\t"
      "setp.ne.u64 there, %1, 0;\n\t"
      "@there mov.u64 %0, %%clock64;\n\t}"
      : "+l"(t)
      : "l"(ns));
  return t;
}

// 2^x to about 2 ulp; -inf gives 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace mkbench::ptx
