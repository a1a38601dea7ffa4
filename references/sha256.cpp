#include "references/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "references/error.h"

namespace mkbench {
namespace {

[[noreturn]] void fail_errno(const std::filesystem::path& path, const char* doing) {
  const int code = errno;
  throw Error(ErrorKind::kBadInput,
              path.string() + ": cannot " + doing + ": " + std::strerror(code));
}

// Closes the descriptor on every way out.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

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
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * size);
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(const void* data, size_t bytes) {
  Sha256 hash;
  hash.update(data, bytes);
  return hash.hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not wait for ever.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.value < 0) fail_errno(path, "open");
  struct stat info {};
  if (fstat(file.value, &info) != 0) fail_errno(path, "stat");
  if (S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail_errno(path, "read");
  }
  if (!S_ISREG(info.st_mode))
    throw Error(ErrorKind::kBadInput, path.string() + ": not a regular file, cannot be hashed");
  Sha256 hash;
  // read(2), not mmap: a file that shrinks meanwhile ends early instead of raising SIGBUS.
  std::vector<unsigned char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = read(file.value, buffer.data(), buffer.size());
    if (got == 0) return hash.hex();
    if (got > 0) {
      hash.update(buffer.data(), static_cast<size_t>(got));
    } else if (errno != EINTR) {
      fail_errno(path, "read");
    }
  }
}

}  // namespace mkbench
