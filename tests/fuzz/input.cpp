#include "tests/fuzz/input.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "references/base/json_strict.h"

namespace mkbench::fuzz {

void broken(const std::string& promise) {
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

bool is_line(std::string_view text) {
  if (text.empty() || find_invalid_utf8(text) != std::string_view::npos) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return false;
    // U+0080 to U+009F, which some terminals obey too.
    if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
  }
  return true;
}

MemoryFile::MemoryFile(const uint8_t* data, size_t size)
    : descriptor_(memfd_create("mkbench-fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) broken("memfd_create failed");
  for (size_t done = 0; done < size;) {
    const ssize_t n = write(descriptor_, data + done, size - done);
    if (n <= 0) broken("a file in memory could not be written");
    done += static_cast<size_t>(n);
  }
  lseek(descriptor_, 0, SEEK_SET);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

std::filesystem::path MemoryFile::path() const {
  return fmt::format("/proc/self/fd/{}", descriptor_);
}

}  // namespace mkbench::fuzz
