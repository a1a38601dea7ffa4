// Turns CUDA's return codes into exceptions, with the text of the failing call.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "references/base/error.h"

namespace mkbench {

// Throws Error(kEnvUnfit) for exhausted memory, Error(kUnsupportedDevice) if the binary has no code
// for the device, else Error(kCuda).
inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, unless it is sticky
  ErrorKind kind = ErrorKind::kCuda;
  if (status == cudaErrorMemoryAllocation) kind = ErrorKind::kEnvUnfit;
  if (status == cudaErrorNoKernelImageForDevice) kind = ErrorKind::kUnsupportedDevice;
  throw Error(kind, std::string(call) + ": " + cudaGetErrorName(status) + ": " +
                        cudaGetErrorString(status));
}

}  // namespace mkbench

#define MKBENCH_CUDA(call) ::mkbench::check_cuda((call), #call)
