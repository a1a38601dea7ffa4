#include "references/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "references/base/error.h"
#include "references/base/regular_file.h"

namespace mkbench {

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(md); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (context_->md == nullptr || EVP_DigestInit_ex(context_->md, EVP_sha256(), nullptr) != 1)
    throw Error(ErrorKind::kRuntime, "libcrypto has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(const void* data, size_t bytes) {
  if (EVP_DigestUpdate(context_->md, data, bytes) != 1)
    throw Error(ErrorKind::kRuntime, "libcrypto: SHA-256 update failed");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context_->md, digest.data(), &size) != 1)
    throw Error(ErrorKind::kRuntime, "libcrypto: SHA-256 was already ended");
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

std::string sha256_hex(const void* data, size_t bytes) {
  Sha256 hash;
  hash.update(data, bytes);
  return hash.hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  const RegularFile file(path);
  Sha256 hash;
  // The file is read, not mapped: a file that shrinks meanwhile causes an Error instead of a
  // SIGBUS.
  std::vector<unsigned char> buffer(1 << 20);
  for (uint64_t at = 0; at < file.size();) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - at));
    file.read_at(at, buffer.data(), bytes);
    hash.update(buffer.data(), bytes);
    at += bytes;
  }
  file.check_unchanged();
  return hash.hex();
}

}  // namespace mkbench
