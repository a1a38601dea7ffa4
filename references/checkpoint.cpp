// load_folder(): turns config.json and one or more safetensors files into ModelWeights, or into an
// error that says what is wrong with them.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/manifest.h"
#include "references/safetensors.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 16 << 20;
constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kNamesShown = 4;
// A hint at a similar name compares at most this many: 65,536 names would take seconds.
constexpr size_t kNamesCompared = 2048;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where + ": " + what);
}

// A tensor's file and its entry there.
struct Located {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

// Kept alive by ModelWeights::owner.
struct Checkpoint {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, Located> tensors;
  std::vector<std::vector<Bf16>> copies;  // tensors that lie misaligned in their file
};

bool exists_somehow(const fs::path& path) {
  struct stat info {};
  // A dangling link exists too: opening it gives the reason.
  return lstat(path.c_str(), &info) == 0;
}

void add_file(Checkpoint& checkpoint, const fs::path& path) {
  checkpoint.files.push_back(std::make_unique<SafetensorsFile>(path));
}

// The folder's index, checked as far as it can be without opening a shard: name -> file name.
std::map<std::string, std::string> read_weight_map(const json& index, const std::string& where) {
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail(where, "wanted an object with a weight_map object");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string key = "weight_map key " + in_quotes(tensor);
    if (!shard.is_string()) fail(where, key + " is " + describe(shard) + ", wanted a file name");
    const std::string& name = shard.get_ref<const std::string&>();
    // A shard must lie beside the index; a path in its name could read any file of the machine.
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == ".." ||
        name.find('\0') != std::string::npos)
      fail(where, key + " names shard " + in_quotes(name) + ", wanted a plain file name");
    weight_map.emplace(tensor, name);
  }
  return weight_map;
}

void check_total_size(const json& index, const Checkpoint& checkpoint, const std::string& where) {
  if (!index.contains("metadata") || !index["metadata"].is_object()) return;
  const auto total = index["metadata"].find("total_size");
  if (total == index["metadata"].end()) return;
  uint64_t bytes = 0;
  for (const auto& [name, located] : checkpoint.tensors) bytes += located.entry->bytes();
  if (!total->is_number_unsigned() || total->get<uint64_t>() != bytes)
    fail(where,
         fmt::format("metadata.total_size is {}, but the tensors of its {} shards have {} bytes",
                     describe(*total), checkpoint.files.size(), bytes));
}

std::string shard_name(const Located& located) {
  return in_quotes(fs::path(located.file->path()).filename().string());
}

void open_sharded(Checkpoint& checkpoint, const fs::path& folder) {
  const fs::path index_path = folder / kIndexFile;
  const std::string where = index_path.string();
  const JsonLimits limits{.bytes = kMaxIndexBytes, .depth = 8, .keys = 2 * kMaxTensors};
  const json index = read_json_strict(index_path, limits);
  const std::map<std::string, std::string> weight_map = read_weight_map(index, where);

  std::map<std::string, std::string> first_tensor;  // shard -> a tensor that the index places there
  for (const auto& [tensor, shard] : weight_map) first_tensor.emplace(shard, tensor);
  for (const auto& [shard, tensor] : first_tensor) {
    if (!exists_somehow(folder / shard))
      fail(where, "shard " + in_quotes(shard) + " of " + in_quotes(tensor) + " is missing");
    add_file(checkpoint, folder / shard);
    const SafetensorsFile& file = *checkpoint.files.back();
    for (const TensorEntry& entry : file.header().tensors) {
      const auto mapped = weight_map.find(entry.name);
      if (mapped == weight_map.end())
        fail(where,
             in_quotes(entry.name) + " is in shard " + in_quotes(shard) + " but not in weight_map");
      const auto [held, is_new] = checkpoint.tensors.emplace(entry.name, Located{&file, &entry});
      if (!is_new)
        fail(where, in_quotes(entry.name) + " is in two shards, " + shard_name(held->second) +
                        " and " + in_quotes(shard));
    }
  }
  for (const auto& [tensor, shard] : weight_map) {
    const auto found = checkpoint.tensors.find(tensor);
    const bool is_nowhere = found == checkpoint.tensors.end();
    if (is_nowhere || found->second.file->path() != (folder / shard).string())
      fail(where, in_quotes(tensor) + " is not in shard " + in_quotes(shard) +
                      (is_nowhere ? "" : " but in " + shard_name(found->second)));
  }
  check_total_size(index, checkpoint, where);
}

void open_single(Checkpoint& checkpoint, const fs::path& folder) {
  add_file(checkpoint, folder / kSingleFile);
  const SafetensorsFile& file = *checkpoint.files.back();
  for (const TensorEntry& entry : file.header().tensors)
    checkpoint.tensors.emplace(entry.name, Located{&file, &entry});
}

// A config.json that the manifest does not list may be the user's own and is accepted.
void check_manifest(const fs::path& folder, const Checkpoint& checkpoint) {
  const std::optional<Manifest> manifest = Manifest::of(folder);
  if (!manifest) return;
  const fs::path config = folder / "config.json";
  if (manifest->lists(config)) manifest->check(config, sha256_file(config));
  for (const auto& file : checkpoint.files) {
    const fs::path path = file->path();
    manifest->check(path, sha256_file(path));
  }
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// "'a' (nearest unknown: 'b'), 'c' and 7 more"; hints only where the names are alike.
std::string list_names(const std::vector<std::string>& names,
                       const std::vector<std::string>& candidates, const char* candidate_kind) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    // Names are cut before they are compared: a hostile file may hold a name of megabytes.
    const std::string_view name = std::string_view(names[i]).substr(0, 120);
    text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
    size_t best = 12;
    const std::string* nearest = nullptr;
    for (const std::string& candidate :
         std::span(candidates).first(std::min(candidates.size(), kNamesCompared))) {
      const size_t distance = edit_distance(name, std::string_view(candidate).substr(0, 120));
      if (distance < best) {
        best = distance;
        nearest = &candidate;
      }
    }
    if (nearest != nullptr)
      text += fmt::format(" (nearest {}: {})", candidate_kind, in_quotes(*nearest));
  }
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

// Wants every expected name and no other: an unknown tensor means another model.
void check_names(const Checkpoint& checkpoint, const std::vector<NamedTensor>& table, bool tied,
                 const std::string& where) {
  std::vector<std::string> missing, unknown;
  std::set<std::string_view> known;
  for (const NamedTensor& t : table) {
    known.insert(t.name);
    if (checkpoint.tensors.contains(t.name)) continue;
    if (t.global != &ModelWeights::lm_head) {
      missing.push_back(t.name);
    } else if (!tied) {
      missing.insert(missing.begin(), t.name);  // first in the list, because it explains the error
    }
  }
  for (const auto& [name, located] : checkpoint.tensors) {
    if (!known.contains(name)) unknown.push_back(name);
  }
  if (missing.empty() && unknown.empty()) return;
  std::string what;
  if (!missing.empty())
    what = fmt::format("{} of {} tensors missing: {}", missing.size(), table.size(),
                       list_names(missing, unknown, "unknown"));
  if (!unknown.empty()) {
    std::vector<std::string> expected;
    for (const NamedTensor& t : table) expected.push_back(t.name);
    what += fmt::format("{}{} unknown: {}", what.empty() ? "" : "; ", unknown.size(),
                        list_names(unknown, missing.empty() ? expected : missing, "expected"));
  }
  if (!missing.empty() && missing.front() == "lm_head.weight")
    what += "; tie_word_embeddings is false, so model.embed_tokens.weight does not stand for it";
  fail(where, what);
}

void check_type_and_shape(const Located& located, const NamedTensor& t, const ModelShape& s,
                          const fs::path& config_path) {
  const TensorEntry& entry = *located.entry;
  const std::string where = located.file->path() + ": tensor " + in_quotes(t.name);
  if (entry.dtype != "BF16") fail(where, fmt::format("dtype is {}, wanted BF16", entry.dtype));
  std::vector<uint64_t> wanted;
  if (!t.is_vector) wanted.push_back(static_cast<uint64_t>(t.rows));
  wanted.push_back(static_cast<uint64_t>(t.cols));
  if (entry.shape == wanted) return;
  const bool transposed = entry.shape.size() == 2 && wanted.size() == 2 &&
                          entry.shape[0] == wanted[1] && entry.shape[1] == wanted[0];
  fail(where,
       fmt::format("shape is {}, wanted {}{} by {} (hidden_size {}, intermediate_size {}, "
                   "num_attention_heads {}, num_key_value_heads {}, head_dim {}, vocab_size {})",
                   shape_text(entry.shape), shape_text(wanted), transposed ? " (transposed?)" : "",
                   config_path.string(), s.hidden, s.intermediate, s.heads, s.kv_heads, s.head_dim,
                   s.vocab));
}

// The findings of one pass over a tensor's values.
struct Scan {
  uint64_t not_finite = 0;
  uint64_t first = 0;  // index of the first value that is not finite
  bool all_zero = true;

  void add(std::span<const Bf16> values, uint64_t offset) {
    uint32_t bad = 0, any = 0;
    for (const Bf16 value : values) {  // no branch: this loop reads gigabytes
      const uint32_t magnitude = value.bits & 0x7fffu;
      any |= magnitude;
      bad += magnitude >= 0x7f80u ? 1 : 0;
    }
    all_zero = all_zero && any == 0;
    if (bad != 0 && not_finite == 0) {
      const auto at = std::find_if(values.begin(), values.end(),
                                   [](Bf16 value) { return (value.bits & 0x7fffu) >= 0x7f80u; });
      first = offset + static_cast<uint64_t>(at - values.begin());
    }
    not_finite += bad;
  }

  void check(const NamedTensor& t, const std::string& path) const {
    const std::string where = path + ": tensor " + in_quotes(t.name);
    const auto cols = static_cast<uint64_t>(t.cols);
    if (not_finite != 0)
      fail(where, fmt::format("{} values are NaN or Inf, the first at index {} (row {}, column {})",
                              not_finite, first, first / cols, first % cols));
    if (all_zero)
      fail(where, fmt::format("all {} values are zero", static_cast<uint64_t>(t.rows) * cols));
  }
};

// Calls use(values, index of the first) over the whole tensor. Values come from file reads, which
// fail with an Error where the file shrinks meanwhile; a mapping would raise SIGBUS.
template <typename Use>
void for_each_chunk(const Located& located, std::vector<Bf16>& buffer, Use use) {
  const uint64_t bytes = located.entry->bytes();
  buffer.resize(kChunkBytes / sizeof(Bf16));
  for (uint64_t at = 0; at < bytes; at += kChunkBytes) {
    const std::span<Bf16> values(
        buffer.data(), static_cast<size_t>(std::min<uint64_t>(kChunkBytes, bytes - at)) / 2);
    located.file->read(*located.entry, at, std::as_writable_bytes(values));
    use(std::span<const Bf16>(values), at / 2);
  }
}

// A file with tie_word_embeddings may hold a head all the same: its bytes must be the embedding's,
// or one of the two statements is wrong.
void check_tied_head(const Located& embed, const Located& head, int hidden) {
  std::vector<Bf16> embed_buffer(kChunkBytes / sizeof(Bf16)), head_buffer;
  for_each_chunk(head, head_buffer, [&](std::span<const Bf16> values, uint64_t first) {
    const std::span<Bf16> other(embed_buffer.data(), values.size());
    embed.file->read(*embed.entry, 2 * first, std::as_writable_bytes(other));
    if (std::memcmp(values.data(), other.data(), values.size_bytes()) == 0) return;
    size_t i = 0;
    while (values[i].bits == other[i].bits) ++i;
    fail(head.file->path(),
         fmt::format("tie_word_embeddings is true but 'lm_head.weight' differs from "
                     "'model.embed_tokens.weight', first in row {}",
                     (first + i) / static_cast<uint64_t>(hidden)));
  });
}

// One pass over a tensor's values for all that needs them.
void read_values(const Located& located, const NamedTensor& t, bool check_finite, Sha256* hash,
                 std::vector<Bf16>& buffer) {
  Scan scan;
  for_each_chunk(located, buffer, [&](std::span<const Bf16> values, uint64_t first) {
    if (hash != nullptr) hash->update(values.data(), values.size_bytes());
    if (check_finite) scan.add(values, first);
  });
  if (check_finite) scan.check(t, located.file->path());
}

Matrix view_of(Checkpoint& checkpoint, const Located& located, const NamedTensor& t) {
  const std::span<const std::byte> bytes = located.file->view(*located.entry);
  Matrix matrix{nullptr, t.rows, t.cols};
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(Bf16) == 0) {
    matrix.data = reinterpret_cast<const Bf16*>(bytes.data());
  } else {
    std::vector<Bf16>& copy = checkpoint.copies.emplace_back(matrix.size());
    located.file->read(*located.entry, 0, std::as_writable_bytes(std::span(copy)));
    matrix.data = copy.data();
  }
  return matrix;
}

std::string head_text(bool tied, bool in_file) {
  if (!tied) return "lm_head.weight, untied (tie_word_embeddings is false)";
  return fmt::format(
      "the embedding (tie_word_embeddings is true, {})",
      in_file ? "and lm_head.weight has equal bytes" : "and there is no lm_head.weight");
}

}  // namespace

ModelWeights load_folder(const fs::path& folder, const std::string& name,
                         const LoadOptions& options) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) fail(folder.string(), std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) fail(folder.string(), "wanted a folder with config.json and weights");
  const fs::path config_path = folder / "config.json";
  ModelWeights weights;
  weights.name = name;
  weights.config = read_config(config_path);
  const bool tied = weights.config.tie_word_embeddings;

  auto checkpoint = std::make_shared<Checkpoint>();
  const bool single = exists_somehow(folder / kSingleFile);
  if (!single && !exists_somehow(folder / kIndexFile))
    fail(folder.string(), fmt::format("holds neither {} nor {}", kSingleFile, kIndexFile));
  if (single) {
    open_single(*checkpoint, folder);
  } else {
    open_sharded(*checkpoint, folder);
  }
  if (options.check_manifest) check_manifest(folder, *checkpoint);

  const std::vector<NamedTensor> table = tensor_table(weights.config);
  check_names(*checkpoint, table, tied, (folder / (single ? kSingleFile : kIndexFile)).string());
  weights.layers.resize(static_cast<size_t>(weights.config.shape.layers));
  const bool hashes = options.sha256.empty();
  const bool reads_values = hashes || options.check_finite;
  Sha256 hash;
  std::vector<Bf16> buffer;
  for (const NamedTensor& t : table) {
    const auto found = checkpoint->tensors.find(t.name);
    const bool is_tied_head = tied && t.global == &ModelWeights::lm_head;
    if (found != checkpoint->tensors.end()) {
      const Located& located = found->second;
      check_type_and_shape(located, t, weights.config.shape, config_path);
      if (is_tied_head) {
        if (reads_values)
          check_tied_head(checkpoint->tensors.at("model.embed_tokens.weight"), located, t.cols);
      } else {
        if (reads_values)
          read_values(located, t, options.check_finite, hashes ? &hash : nullptr, buffer);
        tensor_of(weights, t) = view_of(*checkpoint, located, t);
      }
    }
    if (is_tied_head) weights.lm_head = weights.embed_tokens;
  }
  if (reads_values) weights.head = head_text(tied, checkpoint->tensors.contains("lm_head.weight"));
  for (const auto& file : checkpoint->files) file->check_unchanged();
  weights.sha256 = hashes ? hash.hex() : options.sha256;
  std::error_code ignored;
  weights.folder = fs::absolute(folder, ignored);
  weights.owner = std::move(checkpoint);
  return weights;
}

}  // namespace mkbench
