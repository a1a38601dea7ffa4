#include "references/checkpoint_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/foreign_folder.h"
#include "references/manifest.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
const JsonLimits kIndexLimits{.bytes = 16 << 20, .depth = 8, .keys = 2 * kMaxTensors};

bool exists_somehow(const fs::path& path) {
  struct stat info {};
  // A dangling link exists too: check_link() gives the reason.
  return lstat(path.c_str(), &info) == 0;
}

std::string shard_name(const Located& located) {
  return in_quotes(fs::path(located.file->path()).filename().string());
}

// Opens the files of an index: name of a tensor -> name of its file.
class ShardOpener {
 public:
  ShardOpener(const fs::path& folder, Checkpoint& checkpoint, ModelFindings& findings)
      : folder_(folder),
        where_((folder / kIndexFile).string()),
        checkpoint_(checkpoint),
        findings_(findings) {}

  void open() {
    json index;
    checkpoint_.opened = attempt(findings_, where_, "index", [&] {
      check_link(folder_ / kIndexFile);
      index = read_json_strict(folder_ / kIndexFile, kIndexLimits);
    });
    if (!checkpoint_.opened || !read_weight_map(index)) return;
    std::map<std::string, std::string> first_tensor;  // shard -> a tensor that should be in it
    for (const auto& [tensor, shard] : weight_map_) first_tensor.emplace(shard, tensor);
    for (const auto& [shard, tensor] : first_tensor) open_shard(shard, tensor);
    check_places();
    if (checkpoint_.unread.empty()) check_total_size(index);
  }

 private:
  void fatal(const std::string& field, const std::string& expected, const std::string& found,
             const std::string& text) {
    findings_.add({.severity = Severity::kFatal,
                   .field = field,
                   .expected = expected,
                   .found = found,
                   .source = std::string(kIndexFile) + ":" + field,
                   .text = text},
                  where_);
  }

  // Reads weight_map and checks what can be checked without opening a shard.
  bool read_weight_map(const json& index) {
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      fatal("weight_map", "an object", "none", "wanted an object with a weight_map object");
      checkpoint_.opened = false;
      return false;
    }
    for (const auto& [tensor, shard] : index["weight_map"].items()) {
      const std::string key = "weight_map key " + in_quotes(tensor);
      const std::string field = "weight_map." + in_quotes(tensor);
      if (!shard.is_string()) {
        fatal(field, "a file name", describe(shard),
              key + " is " + describe(shard) + ", wanted a file name");
        continue;
      }
      const std::string& name = shard.get_ref<const std::string&>();
      // A shard must lie beside the index; a path in its name could read any file of the machine.
      if (name.empty() || name.find('/') != std::string::npos || name == "." || name == ".." ||
          name.find('\0') != std::string::npos) {
        fatal(field, "a plain file name", in_quotes(name),
              key + " names shard " + in_quotes(name) + ", wanted a plain file name");
        continue;
      }
      weight_map_.emplace(tensor, name);
    }
    return true;
  }

  void open_shard(const std::string& shard, const std::string& tensor) {
    if (!exists_somehow(folder_ / shard)) {
      fatal("shard", in_quotes(shard), "missing",
            "shard " + in_quotes(shard) + " of " + in_quotes(tensor) + " is missing");
      return leave_out(shard);
    }
    const bool is_open = attempt(findings_, folder_ / shard, "shard", [&] {
      check_link(folder_ / shard);
      checkpoint_.files.push_back(std::make_unique<SafetensorsFile>(folder_ / shard));
    });
    if (!is_open) return leave_out(shard);
    const SafetensorsFile& file = *checkpoint_.files.back();
    for (const TensorEntry& entry : file.header().tensors) {
      const std::string quoted = in_quotes(entry.name);
      if (!weight_map_.contains(entry.name)) misplaced_.push_back(entry.name);
      const auto [held, is_new] = checkpoint_.tensors.emplace(entry.name, Located{&file, &entry});
      if (!is_new) {
        const std::string both = shard_name(held->second) + " and " + in_quotes(shard);
        fatal("weight_map." + quoted, "one shard", both, quoted + " is in two shards, " + both);
      }
    }
  }

  void leave_out(const std::string& shard) {
    for (const auto& [tensor, name] : weight_map_) {
      if (name == shard) checkpoint_.unread.insert(tensor);
    }
  }

  // transformers reads every shard whole; where the index places a tensor changes nothing.
  void check_places() {
    for (const auto& [tensor, shard] : weight_map_) {
      if (checkpoint_.unread.contains(tensor)) continue;
      const auto found = checkpoint_.tensors.find(tensor);
      if (found == checkpoint_.tensors.end() ||
          found->second.file->path() != (folder_ / shard).string())
        misplaced_.push_back(tensor);
    }
    if (misplaced_.empty()) return;
    const std::string found = fmt::format(
        "{} of {} tensors elsewhere, or unlisted: {}{}", misplaced_.size(), weight_map_.size(),
        in_quotes(misplaced_.front()), misplaced_.size() > 1 ? " .." : "");
    findings_.note("weight_map", "the shard of each tensor", found, kIndexFile,
                   "weight_map has " + found + "; the shards decide, as in transformers");
  }

  void check_total_size(const json& index) {
    if (!index.contains("metadata") || !index["metadata"].is_object()) return;
    const auto total = index["metadata"].find("total_size");
    if (total == index["metadata"].end()) return;
    uint64_t bytes = 0;
    for (const auto& [name, located] : checkpoint_.tensors) bytes += located.entry->bytes();
    if (total->is_number_unsigned() && total->get<uint64_t>() == bytes) return;
    findings_.note(
        "metadata.total_size", fmt::format("{}", bytes), describe(*total),
        std::string(kIndexFile) + ":metadata.total_size",
        fmt::format("metadata.total_size is {}, but the tensors of its {} shards have {} bytes; it "
                    "is not used",
                    describe(*total), checkpoint_.files.size(), bytes));
  }

  const fs::path& folder_;
  const std::string where_;
  Checkpoint& checkpoint_;
  ModelFindings& findings_;
  std::map<std::string, std::string> weight_map_;
  std::vector<std::string> misplaced_;  // tensors that are not where weight_map has them
};

// transformers takes the single file where an index lies beside it. An index that names other files that are there
// makes two sets of weights, and one of them was left by an earlier save.
void check_stale_index(const fs::path& folder, ModelFindings& findings) {
  if (!exists_somehow(folder / kIndexFile)) return;
  const json index = read_json_strict(folder / kIndexFile, kIndexLimits);
  std::set<std::string> shards;
  if (index.is_object() && index.contains("weight_map") && index["weight_map"].is_object()) {
    for (const auto& [tensor, shard] : index["weight_map"].items())
      if (shard.is_string()) shards.insert(shard.get<std::string>());
  }
  if (shards.erase(kSingleFile) > 0 && shards.empty()) return;
  for (const std::string& shard : shards) {
    if (shard.find('\0') != std::string::npos || !exists_somehow(folder / shard)) continue;
    findings.add(
        {.severity = Severity::kFatal,
         .field = "weights",
         .expected = "one set of weights",
         .found = fmt::format("{} and {}", kSingleFile, in_quotes(shard)),
         .source = kIndexFile,
         .text = fmt::format("holds two sets of weights, {} and the shards of {} ({}): remove the "
                             "one that is out of date",
                             kSingleFile, kIndexFile, in_quotes(shard))},
        folder.string());
    return;
  }
  findings.note("weights", kSingleFile, "an index without its shards", kIndexFile,
                fmt::format("{} is not used: {} is there, and none of the shards that it names",
                            kIndexFile, kSingleFile));
}

void open_single(const fs::path& folder, Checkpoint& checkpoint, ModelFindings& findings) {
  attempt(findings, folder / kIndexFile, "index", [&] { check_stale_index(folder, findings); });
  checkpoint.opened = attempt(findings, folder / kSingleFile, "weights", [&] {
    check_link(folder / kSingleFile);
    checkpoint.files.push_back(std::make_unique<SafetensorsFile>(folder / kSingleFile));
  });
  if (!checkpoint.opened) return;
  const SafetensorsFile& file = *checkpoint.files.back();
  for (const TensorEntry& entry : file.header().tensors)
    checkpoint.tensors.emplace(entry.name, Located{&file, &entry});
}

}  // namespace

bool attempt(ModelFindings& findings, const fs::path& file, const std::string& field,
             const std::function<void()>& use) {
  if (findings.throws()) {
    use();
    return true;
  }
  try {
    use();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    std::string text = error.what();
    if (text.starts_with(file.string() + ": ")) text.erase(0, file.string().size() + 2);
    findings.add({.severity = Severity::kFatal,
                  .field = field,
                  .expected = "a file that can be read",
                  .found = text,
                  .source = file.filename().string(),
                  .text = text},
                 file.string());
    return false;
  }
}

Checkpoint open_checkpoint(const fs::path& folder, ModelFindings& findings) {
  Checkpoint checkpoint;
  const bool single = exists_somehow(folder / kSingleFile);
  checkpoint.names_file = (folder / (single ? kSingleFile : kIndexFile)).string();
  if (single) {
    open_single(folder, checkpoint, findings);
  } else if (exists_somehow(folder / kIndexFile)) {
    ShardOpener(folder, checkpoint, findings).open();
  } else {
    checkpoint.opened = false;
    const std::string form = foreign_folder(folder);
    const std::string way_out = form.empty() ? "" : "; it " + form;
    findings.add(
        {.severity = Severity::kFatal,
         .field = "weights",
         .expected = fmt::format("{} or {}", kSingleFile, kIndexFile),
         .found = "neither",
         .source = "folder",
         .text = fmt::format("holds neither {} nor {}{}", kSingleFile, kIndexFile, way_out)},
        folder.string());
  }
  if (constexpr const char* kAdapter = "adapter_config.json";
      checkpoint.opened && exists_somehow(folder / kAdapter))
    findings.note("adapter", "none", kAdapter, kAdapter,
                  fmt::format("{} is not used: the weights are judged without the adapter, which "
                              "transformers adds where PEFT is installed",
                              kAdapter));
  return checkpoint;
}

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

}  // namespace mkbench
