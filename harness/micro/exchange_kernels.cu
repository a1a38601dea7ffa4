// Device translation unit of the exchange microbenchmarks: the rounds, and the load that they may
// run under.
#include "harness/device/bulk_stream.cuh"
#include "harness/micro/protocols.cuh"

namespace mkbench::micro {

__device__ __forceinline__ unsigned multiprocessor_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
  return index;
}

// One cooperative launch runs p.rounds rounds. A round begins when the block has read all of the
// one before, as a phase does. Bounds for two blocks a multiprocessor: half of the registers are
// the load's.
template <typename Exchange>
__global__ void __launch_bounds__(kExchangeThreads, 2)
    exchange_rounds(const __grid_constant__ ExchangeParams p) {
  __shared__ Shared s;
  Exchange exchange;
  bool right = true;
  const bool keeps_time = blockIdx.x == 0 && threadIdx.x == 0;
  if (threadIdx.x == 0) {
    s.expected = 0;
    p.multiprocessors[blockIdx.x] = multiprocessor_index();
  }
  if (keeps_time) p.window_ns[0] = ptx::global_ns();
  unsigned long long last = ptx::sm_cycles();
#pragma unroll 1
  for (unsigned r = 0; r < p.rounds; ++r) {
    right &= exchange.round(p, s, r);
    __syncthreads();
    if (!keeps_time) continue;
    const unsigned long long now = ptx::sm_cycles();
    p.round_cycles[r] = static_cast<unsigned>(now - last);
    last = now;
  }
  if (keeps_time) {
    p.window_ns[1] = ptx::global_ns();
    atomicExch(p.end_load, 1u);
  }
  // Somebody else's: what nobody reads need not have been stored.
  right &= s.vector[threadIdx.x ^ 32].x >= 0;
  if (!right) atomicAdd(p.wrong, 1u);
}

// Streams by bulk copies, a block a multiprocessor, until p.end_load is set.
__global__ void __launch_bounds__(32) stream_load(const __grid_constant__ LoadParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[BulkPlan::kMostStages];
  if (threadIdx.x != 0) return;
  const unsigned long long begin_ns = ptx::global_ns();
  if (atomicAdd(p.started, 1u) == gridDim.x - 1) ptx::store_system(p.all_running, 1);
  // Asked rarely: the answer is an L2 round trip away, and copies wait for it.
  const auto stop = [&](uint32_t issued) {
    if (issued % 64 != 0) return false;
    return ptx::load_relaxed(p.end_load) != 0 || ptx::global_ns() - begin_ns > p.limit_ns;
  };
  const int64_t copies =
      stream_bulk(p.buffer, p.copies_in_buffer, UINT32_MAX, p.plan, ring, full, stop);
  p.reports[blockIdx.x] = {copies < 0 ? 0 : static_cast<unsigned long long>(copies), begin_ns,
                           ptx::global_ns()};
#endif
}

const void* exchange_kernel(Protocol protocol) {
  switch (protocol) {
    case Protocol::kCounter:
      return reinterpret_cast<const void*>(&exchange_rounds<CounterExchange>);
    case Protocol::kEpoch64:
      return reinterpret_cast<const void*>(&exchange_rounds<Epoch64Exchange>);
    case Protocol::kEpoch32:
      return reinterpret_cast<const void*>(&exchange_rounds<Epoch32Exchange>);
    case Protocol::kPartial128:
      return reinterpret_cast<const void*>(&exchange_rounds<Partial128Exchange>);
    case Protocol::kFixedPoint1:
      return reinterpret_cast<const void*>(&exchange_rounds<FixedPointExchange<1>>);
    case Protocol::kFixedPoint4:
      return reinterpret_cast<const void*>(&exchange_rounds<FixedPointExchange<ring::kReplicas>>);
    case Protocol::kCount:
      break;
  }
  return nullptr;
}

const void* load_kernel() { return reinterpret_cast<const void*>(&stream_load); }

}  // namespace mkbench::micro
