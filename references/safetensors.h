// The safetensors container: u64 little-endian header size N, N bytes of JSON, then the tensors'
// bytes. Read strictly.
//
// The Python package (safetensors 0.8.0) accepts every file that this reader accepts, with the same
// tensors; a test compares the two. This reader also requires the following, because a file without
// it may hide swapped weights, or may cost memory before it is known to be sane:
//   - the header starts with '{' at its first byte, as the format's README asks: no byte order mark
//     and no leading space. White space after the object is padding; NUL bytes are not;
//   - no key occurs twice, neither a tensor's name nor a field of a tensor;
//   - an entry is an object of dtype, shape and data_offsets and nothing else, "__metadata__" an
//     object of strings;
//   - at most 16 MiB of header (the format allows 100 MB), 65,536 tensors and rank 8.
// No reader can see from the container that a square matrix is transposed, that one layer's tensors
// stand in another's place, or that two tensors of one shape have swapped names. Only hashes
// (manifest.json, hash_weights) and the parity gate find these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/regular_file.h"

namespace mkbench {

inline constexpr uint64_t kMaxHeaderBytes = 16 << 20;
inline constexpr size_t kMaxTensors = 65'536;
inline constexpr size_t kMaxRank = 8;

struct TensorEntry {
  std::string name;
  std::string_view dtype;  // as the format spells it, e.g. "BF16"; points to a constant
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data section
  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by position; together they cover the data section exactly
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_begin = 0;  // byte of the file at which the data section starts: 8 + N
};

// Checks the first 8 bytes alone and returns N, which is within the cap and the file. `head` holds
// the file's first bytes (64 are enough), by which a message guesses what else the file may be (Git
// LFS pointer, HTML, zip, pickle, GGUF). Throws Error(kBadInput); every message starts with `path`.
uint64_t parse_header_size(std::span<const std::byte> head, uint64_t file_bytes,
                           const std::string& path);

// Parses 8 + N bytes of header and checks every entry against `file_bytes`, the size of the whole
// file. A pure function: `head` may hold more than the header. Throws Error(kBadInput) naming
// tensor, field, found and wanted.
SafetensorsHeader parse_header(std::span<const std::byte> head, uint64_t file_bytes,
                               const std::string& path);

// "[2, 3]"
std::string shape_text(std::span<const uint64_t> shape);

// One opened and mapped file. Not copyable; its views are valid as long as it lives.
class SafetensorsFile {
 public:
  // Throws Error(kBadInput), also for anything that is not a regular file.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return file_.path(); }
  uint64_t file_bytes() const { return file_.size(); }
  const SafetensorsHeader& header() const { return header_; }

  // The mapped bytes of a tensor, at any alignment: BF16 at an odd address happens (N odd) and must
  // be copied out first. Touching pages of a file that has shrunk meanwhile raises SIGBUS; read()
  // and check_unchanged() throw instead, so loaders take their one pass over all bytes (hash, scan)
  // through read() and call check_unchanged() before they give views away.
  std::span<const std::byte> view(const TensorEntry& tensor) const;
  // Copies out.size() bytes from byte `offset` of the tensor. Throws Error(kBadInput) when the file
  // has shrunk.
  void read(const TensorEntry& tensor, uint64_t offset, std::span<std::byte> out) const;
  void check_unchanged() const { file_.check_unchanged(); }

 private:
  RegularFile file_;
  SafetensorsHeader header_;
  const std::byte* mapped_ = nullptr;
};

}  // namespace mkbench
