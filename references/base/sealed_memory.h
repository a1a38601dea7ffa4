// A file in memory that is written once and then sealed: no process can change it any more, this
// one included.
#pragma once

#include <cstddef>
#include <string>

namespace mkbench {

class SealedMemory {
 public:
  // Makes a memfd and maps it for writing. Throws Error(kEnvUnfit) with errno's text.
  SealedMemory(const std::string& name, size_t bytes);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  // Null once the file is sealed.
  std::byte* data() { return mapped_; }
  // Unmaps and seals the file: the kernel seals no file that is mapped for writing. Throws
  // Error(kRuntime).
  void seal();
  int descriptor() const { return descriptor_; }

 private:
  void unmap();
  std::string name_;
  size_t bytes_;
  int descriptor_ = -1;
  std::byte* mapped_ = nullptr;
};

}  // namespace mkbench
