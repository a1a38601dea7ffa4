// A wait on the card for a share of the time since begin_work(), by the card's own clock.
#include <cuda_runtime.h>

namespace slowed {
namespace {

__device__ unsigned long long begun;  // nanoseconds

__device__ unsigned long long card_time() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void mark() { begun = card_time(); }

__global__ void wait(double share) {
  const unsigned long long now = card_time();
  const auto nanoseconds =
      static_cast<unsigned long long>(share * static_cast<double>(now - begun));
  while (card_time() - now < nanoseconds) {
  }
}

}  // namespace

void begin_work() { mark<<<1, 1>>>(); }

// Returns once the wait is over; false where the card reports an error.
bool wait_for_share(double share) {
  wait<<<1, 1>>>(share);
  return cudaDeviceSynchronize() == cudaSuccess;
}

}  // namespace slowed
