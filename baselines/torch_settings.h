// Settings of libtorch that hold for the whole process, whatever the engine. No torch header here.
#pragma once

#include <list>

namespace mkbench {

// Pins precision and determinism for the whole process. Must run before the first cuBLAS call:
// cuBLAS reads CUBLAS_WORKSPACE_CONFIG once, when its first handle is made. Safe to call again.
void pin_torch_settings();

// Requests `threads` CPU threads (a "wish") while the object lives; 0 requests nothing. libtorch
// has one number for the whole process: the newest wish decides, and after the last one libtorch
// gets its own number back. All objects must be made and destroyed by the same thread.
class CpuThreads {
 public:
  explicit CpuThreads(int threads);
  CpuThreads(const CpuThreads&) = delete;
  CpuThreads& operator=(const CpuThreads&) = delete;
  ~CpuThreads();

 private:
  std::list<int>::iterator wish_;
  const bool held_;
};

}  // namespace mkbench
