// Settings of libtorch that hold for the whole process, whatever the engine. No torch header here.
#pragma once

#include <list>

namespace mkbench {

// Pins precision and determinism for the whole process. Must run before the first cuBLAS call:
// cuBLAS reads CUBLAS_WORKSPACE_CONFIG once, when its first handle is made. Safe to call again.
void pin_torch_settings();

// A wish for `threads` CPU threads, held as long as the object lives; 0 is no wish. libtorch has
// one number for the whole process: the newest wish decides, and once the last wish has ended, the
// number from before the first returns. Objects must be made and ended by one thread.
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
