#include "harness/host/card_work.h"

#include <cuda_runtime_api.h>

#include "harness/device/l2_flush.h"
#include "kernels/cuda_check.h"

namespace mkbench {

void flush_l2(const FlushCall& call) {
  if (!call.cuda) return;
  static L2Flush flush(call.gpu);
  flush.run();
}

void finish_device_work() {
  // Without a GPU there is no work. Clears the error, which a later call would report as its own.
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return;
  }
  MKBENCH_CUDA(cudaDeviceSynchronize());
}

int64_t device_bytes() {
  size_t free = 0, total = 0;
  MKBENCH_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(total - free);
}

}  // namespace mkbench
