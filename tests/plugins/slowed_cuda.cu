// The plain megakernel as a library, slowed down by a share of its time on the card (slowed.h).
// naive_cuda.cu does not serve here: its launches differ by several percent between processes.
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/megakernel_behind_abi.cpp"
#undef mkbench_engine_table

namespace slowed {

__device__ unsigned long long begun;  // nanoseconds, by the card's clock

__device__ unsigned long long card_time() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
__global__ void begin_work() { begun = card_time(); }
__global__ void wait_for_share(double share) {
  const unsigned long long now = card_time();
  const auto wait = static_cast<unsigned long long>(share * static_cast<double>(now - begun));
  while (card_time() - now < wait) {
  }
}

// The sound copies launch both kernels too, so that the wait is the only difference.
template <typename Work>
int32_t decode_and_wait(double share, const Work& work) {
  begin_work<<<1, 1>>>();
  const int32_t status = work();
  wait_for_share<<<1, 1>>>(share);
  const bool waited = cudaDeviceSynchronize() == cudaSuccess;
  return status == MKBENCH_OK && !waited ? MKBENCH_FAILED : status;
}

}  // namespace slowed

#include "tests/plugins/slowed.h"

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table(
    const mkbench_abi_sizes* host) {
  return slowed::slowed_table(sound_engine_table(host),
                              reinterpret_cast<const void*>(&mkbench_engine_table));
}
