// A sound model of a few hundred bytes, and the means to damage it, for the tests of the input
// tables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "references/model/shape.h"

namespace mkbench::testing {

// A folder in the system's folder of temporary files, removed with its content at the end of its
// life.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_file(const std::filesystem::path& path, std::string_view bytes);

// A tensor as it will be written to a file; nothing is checked.
struct FileTensor {
  std::string name;
  std::string dtype = "BF16";
  std::vector<uint64_t> shape;
  std::string data;
};

// q width (8) differs from hidden (4); k_proj and v_proj are square, so that a transposition keeps
// their shape.
inline constexpr ModelShape kMicro{.hidden = 4,
                                   .intermediate = 8,
                                   .layers = 2,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .vocab = 6};

// An edit of kMicro's config.json: replaces or adds `key`; an empty value removes it.
struct ConfigEdit {
  std::string key, value;
};
std::string micro_config(const std::vector<ConfigEdit>& edits = {});

// All tensors of kMicro, without lm_head (tied). Every value is finite, none is zero.
std::vector<FileTensor> micro_tensors();
FileTensor& find_tensor(std::vector<FileTensor>& tensors, std::string_view name);
// [rows, cols] of distinct small values.
FileTensor make_tensor(const std::string& name, std::vector<uint64_t> shape, int seed);

// `tensor` in "F32" or "F16", every value off by almost half a step of bf16, so that it rounds to
// the value that it had.
FileTensor stored_as(const FileTensor& tensor, const std::string& dtype);

// The bytes of a container: size as u64, `header`, `data`.
std::string container(std::string_view header, std::string_view data);
// The container of `tensors`, packed in order; spaces pad the header to N % 8 == `header_residue`.
std::string safetensors_bytes(const std::vector<FileTensor>& tensors, size_t header_residue = 0);

// Writes config.json and model.safetensors of kMicro.
void write_micro_model(const std::filesystem::path& folder);
// Writes manifest.json for the folder's config.json and model.safetensors as they are now.
void write_manifest(const std::filesystem::path& folder);

}  // namespace mkbench::testing
