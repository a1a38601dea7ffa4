#include "harness/wire/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "references/base/error.h"

namespace mkbench {
namespace {

[[noreturn]] void fail(const char* what, size_t bytes) {
  throw Error(ErrorKind::kRuntime,
              fmt::format("arena of {} bytes: {}: {}", bytes, what, std::strerror(errno)));
}

}  // namespace

Arena::Arena() : fd_(memfd_create("mkbench-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)), owner_(true) {
  if (fd_ < 0 || fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK) != 0) fail("memfd_create", 0);
}

Arena::~Arena() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  if (owner_ && fd_ >= 0) close(fd_);
}

char* Arena::at_least(size_t bytes) {
  if (mapped_ != nullptr && bytes <= mapped_bytes_) return mapped_;
  constexpr size_t kStep = size_t{1} << 20;
  const size_t wanted = (std::max(bytes, size_t{1}) + kStep - 1) / kStep * kStep;
  if (owner_) {
    if (ftruncate(fd_, static_cast<off_t>(wanted)) != 0) fail("ftruncate", wanted);
  } else {
    struct stat info {};
    if (fstat(fd_, &info) != 0 || static_cast<size_t>(info.st_size) < bytes)
      fail("too small", bytes);
  }
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  void* mapped = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  mapped_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  mapped_bytes_ = wanted;
  if (mapped_ == nullptr) fail("mmap", wanted);
  return mapped_;
}

}  // namespace mkbench
