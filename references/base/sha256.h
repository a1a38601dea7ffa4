// SHA-256 over bytes and files (libcrypto).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace mkbench {

// Incremental hash; hex() finishes it.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, size_t bytes);
  std::string hex();  // 64 lower-case digits

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(const void* data, size_t bytes);
// Throws Error(kBadInput) with errno's text when the file cannot be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace mkbench
