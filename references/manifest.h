// manifest.json of a folder: size and sha256 of its files when they were published. A file that has
// changed since is refused before anything is concluded from it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace mkbench {

class Manifest {
 public:
  // The manifest of `folder`; nullopt if there is none, or if its manifest.json belongs to another
  // program (it has no "files"). Throws Error(kBadInput) naming the defect.
  static std::optional<Manifest> of(const std::filesystem::path& folder);

  bool lists(const std::filesystem::path& file) const;
  // Throws Error(kBadInput) unless `file` is listed and has the listed size, if there is one.
  void check_size(const std::filesystem::path& file) const;
  // As check_size(), and throws Error(kBadInput) unless `sha256` is the listed hash. Messages name
  // both sizes or both hashes.
  void check(const std::filesystem::path& file, const std::string& sha256) const;

 private:
  struct Entry {
    std::string sha256;
    std::optional<uint64_t> bytes;
  };
  std::filesystem::path path_;
  std::map<std::string, Entry> files_;  // by file name
};

}  // namespace mkbench
