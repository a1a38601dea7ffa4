// A CUDA event that is destroyed with its object.
#pragma once

#include "kernels/cuda_check.h"

namespace mkbench {

// record() marks a point of the default stream.
class Event {
 public:
  Event() { MKBENCH_CUDA(cudaEventCreate(&event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record() { MKBENCH_CUDA(cudaEventRecord(event_, nullptr)); }
  double ms_since(const Event& start) const {
    float ms = 0;
    MKBENCH_CUDA(cudaEventElapsedTime(&ms, start.event_, event_));
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace mkbench
