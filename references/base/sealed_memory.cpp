#include "references/base/sealed_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "references/base/error.h"

namespace mkbench {
namespace {

std::string describe_failure(const std::string& name, size_t bytes, const char* call, int error) {
  return fmt::format("memory file {} of {} bytes: {} failed: {}", name, bytes, call,
                     std::strerror(error));
}

}  // namespace

SealedMemory::SealedMemory(const std::string& name, size_t bytes) : name_(name), bytes_(bytes) {
  descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const char* call = "memfd_create";
  int error = errno;
  if (descriptor_ >= 0) {
    call = "ftruncate";
    const bool sized = ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0;
    error = errno;
    if (sized) {
      call = "mmap";
      void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
      error = errno;
      if (mapped != MAP_FAILED) {
        mapped_ = static_cast<std::byte*>(mapped);
        // Otherwise a child that another thread forks would keep a mapping, and sealing would fail.
        madvise(mapped, bytes, MADV_DONTFORK);
        return;
      }
    }
    close(descriptor_);
  }
  throw Error(ErrorKind::kEnvUnfit, describe_failure(name, bytes, call, error));
}

SealedMemory::~SealedMemory() {
  unmap();
  close(descriptor_);
}

void SealedMemory::unmap() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
  mapped_ = nullptr;
}

void SealedMemory::seal() {
  unmap();
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(descriptor_, F_ADD_SEALS, kSeals) != 0)
    throw Error(ErrorKind::kRuntime, describe_failure(name_, bytes_, "F_ADD_SEALS", errno));
  // A memfd begins with mode 0777; with 0400 even open() for writing fails, except for root.
  if (fchmod(descriptor_, S_IRUSR) != 0)
    throw Error(ErrorKind::kRuntime, describe_failure(name_, bytes_, "fchmod", errno));
}

}  // namespace mkbench
