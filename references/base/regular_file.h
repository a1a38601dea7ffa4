// A regular file opened for reading. Directories, FIFOs and devices are refused without waiting for
// them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace mkbench {

// Reads by position only. After the file has shrunk read_at() throws an Error, where a mapping
// would raise SIGBUS.
class RegularFile {
 public:
  // Throws Error(kBadInput) with errno's text, or naming the kind of file found.
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }  // size at opening

  // Fills `out` from byte `offset` on. Throws Error(kBadInput) where the file ends too early.
  void read_at(uint64_t offset, void* out, size_t bytes) const;
  // Throws Error(kBadInput) where size or modification time have changed since opening.
  void check_unchanged() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  struct stat opened_ {};
};

// All bytes of an open file from its start, as far as they can be read; the file position stays.
std::string read_all(int fd);

// Returns false also if the path cannot be examined.
inline bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace mkbench
