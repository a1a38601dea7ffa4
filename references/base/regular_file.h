// A regular file opened for reading. Directories, FIFOs and devices are refused without waiting for
// them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace mkbench {

// Positioned reads only. read_at() after the file has shrunk is an Error, where a mapping would
// raise SIGBUS.
class RegularFile {
 public:
  // Throws Error(kBadInput) with errno's text, or naming the kind of file found.
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }  // when it was opened

  // Fills `out` from byte `offset` on. Throws Error(kBadInput) when the file ends before.
  void read_at(uint64_t offset, void* out, size_t bytes) const;
  // Throws Error(kBadInput) when size or modification time are no longer what they were at opening.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  struct stat opened_ {};
};

}  // namespace mkbench
