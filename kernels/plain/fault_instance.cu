// Device translation unit: plain's kernel for Tiny with fault hooks, as PTX for any card of sm_80
// and later. What ships is compiled elsewhere, from the same phases.
#include "kernels/plain/fault_instance.h"
#include "kernels/plain/kernel.cuh"

namespace mkbench::plain {
namespace {

__device__ int planted_fault;

struct FaultyTiny {
  static constexpr ModelShape kShape = kTiny;
  static __device__ __forceinline__ bool planted(PlantedFault fault) {
    return planted_fault == static_cast<int>(fault);
  }
};

}  // namespace

const void* faulty_kernel() { return reinterpret_cast<const void*>(&plain_decode<FaultyTiny>); }

const void* planted_fault_symbol() { return reinterpret_cast<const void*>(&planted_fault); }

}  // namespace mkbench::plain
