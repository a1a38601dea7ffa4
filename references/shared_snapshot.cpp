#include "references/shared_snapshot.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "references/base/error.h"
#include "references/base/free_memory.h"
#include "references/base/json_strict.h"
#include "references/base/parallel.h"
#include "references/base/sealed_memory.h"
#include "references/checkpoint_files.h"
#include "references/config_scan.h"
#include "references/outline.h"
#include "references/snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// The data section begins at a multiple of this, and so does every tensor of Qwen3's shapes.
constexpr size_t kAlignment = 256;
constexpr int64_t kCopyBytes = 4 << 20;

std::vector<NamedTensor> stored_tensors(const ModelConfig& config) {
  std::vector<NamedTensor> table = tensor_table(config);
  if (config.tie_word_embeddings) table.pop_back();  // lm_head is the last
  return table;
}

size_t bytes_of(const NamedTensor& t) { return Matrix{nullptr, t.rows, t.cols}.bytes(); }

// Everything before the data section: the header's size and the header, which spaces fill up to a
// multiple of kAlignment. The format forbids holes, so tensors follow each other without gaps.
std::string file_head(const std::vector<NamedTensor>& tensors) {
  nlohmann::ordered_json root;
  root["__metadata__"] = {{"format", "pt"}};  // transformers refuses a file without it
  size_t at = 0;
  for (const NamedTensor& t : tensors) {
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    if (!t.is_vector) shape.push_back(t.rows);
    shape.push_back(t.cols);
    const size_t end = at + bytes_of(t);
    root[t.name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  const std::string text = root.dump();
  const size_t all = (8 + text.size() + kAlignment - 1) / kAlignment * kAlignment;
  std::string head;
  for (size_t i = 0; i < 8; ++i) head += static_cast<char>((all - 8) >> (8 * i) & 0xff);
  head += text;
  head.resize(all, ' ');
  return head;
}

// The two files of one model in memory, and the folder that names them once they are sealed.
class Publication {
 public:
  explicit Publication(const ModelConfig& config)
      : Publication(file_head(stored_tensors(config)), config) {}

  // The data section, until publish().
  std::byte* data() { return file_.data() + head_bytes_; }

  const fs::path& publish() {
    file_.seal();
    config_.seal();
    folder_.emplace();
    folder_->link("model.safetensors", file_.descriptor());
    folder_->link("config.json", config_.descriptor());
    return folder_->path();
  }

 private:
  Publication(const std::string& head, const ModelConfig& config)
      : head_bytes_(head.size()),
        file_("model.safetensors", checked_size(head.size(), config)),
        config_("config.json", config_text(config).size()) {
    std::copy_n(head.data(), head.size(), reinterpret_cast<char*>(file_.data()));
    const std::string text = config_text(config);
    std::copy_n(text.data(), text.size(), reinterpret_cast<char*>(config_.data()));
  }

  static size_t checked_size(size_t head_bytes, const ModelConfig& config) {
    size_t bytes = head_bytes;
    for (const NamedTensor& t : stored_tensors(config)) bytes += bytes_of(t);
    check_free_memory(bytes, "a copy of the weights for other processes");
    return bytes;
  }

  size_t head_bytes_;
  SealedMemory file_, config_;
  std::optional<SnapshotFolder> folder_;  // destroyed before the files that it links to
};

// Loads the weights from the published folder, because publishing may unmap the views of `made`.
ModelWeights publish(const std::shared_ptr<Publication>& publication, const ModelWeights& made) {
  const fs::path& folder = publication->publish();
  ModelWeights shared =
      load_shared(folder, made.name, made.lagset, made.sha256, snapshot_stamp(folder));
  shared.config = made.config;  // keeps Rope::theta_key
  shared.salt = made.salt;      // not told to hosts: an engine has to read the weights
  shared.head = made.head;
  shared.model_type = made.model_type;
  shared.not_covered = made.not_covered;
  shared.notes = made.notes;
  shared.rounded = made.rounded;
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<Publication>>;
  shared.owner = std::make_shared<Both>(shared.owner, publication);
  return shared;
}

void remove_stale_snapshots_once() {
  static std::once_flag done;
  std::call_once(done, remove_stale_snapshots);
}

// False if the weights were cut or their head untied after loading, and for a folder whose decoder
// is one part of a larger model, because hosts and engines from elsewhere read the whole file alone.
bool describes(const fs::path& folder, const ModelConfig& config) {
  const ConfigScan scan = read_config_scan(folder / "config.json");
  const ModelConfig& held = scan.config;
  return scan.family->config_key.empty() && held.shape == config.shape &&
         held.rope.same_angles(config.rope) && held.rms_norm_eps == config.rms_norm_eps &&
         held.tie_word_embeddings == config.tie_word_embeddings &&
         held.max_positions == config.max_positions;
}

std::string stamp_of(const fs::path& file) {
  struct stat info {};
  if (stat(file.c_str(), &info) != 0)
    throw Error(ErrorKind::kBadInput, file.string() + ": " + std::strerror(errno));
  const int64_t ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return fmt::format("{} {} {}", in_quotes(file.filename().string(), 300), info.st_size, ns);
}

void check_stamp(const fs::path& folder, const std::string& wanted) {
  const std::string found = snapshot_stamp(folder);
  if (found == wanted) return;
  throw Error(
      ErrorKind::kIntegrity,
      fmt::format("{}: the weights have changed since mkbench loaded them: found {}, wanted "
                  "{} (name, bytes, time in ns)",
                  folder.string(), found, wanted));
}

}  // namespace

ModelWeights share_weights(const ModelWeights& weights) {
  if (weights.config.is_outline()) return weights;  // its folder is all that there is of it
  if (!weights.folder.empty() && describes(weights.folder, weights.config)) return weights;
  check_shapes(weights, "share_weights");
  remove_stale_snapshots_once();
  const auto publication = std::make_shared<Publication>(weights.config);
  std::byte* to = publication->data();
  for (const NamedTensor& t : stored_tensors(weights.config)) {
    const Matrix& matrix = tensor_of(weights, t);
    const auto* from = reinterpret_cast<const std::byte*>(matrix.data);
    parallel_chunks(static_cast<int64_t>(matrix.bytes()), kCopyBytes, thread_count(0),
                    [&](int64_t begin, int64_t end) {
                      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
                    });
    to += matrix.bytes();
  }
  return publish(publication, weights);
}

ModelWeights make_shared_synthetic(const ShapeRow& row, std::string_view lagset, int threads,
                                   uint64_t salt) {
  remove_stale_snapshots_once();
  std::shared_ptr<Publication> publication;
  const auto memory = [&](const ModelConfig& config) {
    publication = std::make_shared<Publication>(config);
    return std::shared_ptr<Bf16[]>(publication, reinterpret_cast<Bf16*>(publication->data()));
  };
  ModelWeights made = make_synthetic(row, lagset, threads, memory, salt);
  return publish(publication, made);
}

int64_t misaligned_bytes(const fs::path& folder) {
  const ConfigScan scan = read_config_scan(folder / "config.json");
  if (!scan.family->config_key.empty()) return 0;
  ModelFindings rules(ModelFindings::Mode::kThrowFirst);
  const Checkpoint checkpoint = open_checkpoint(folder, rules);
  int64_t bytes = 0;
  for (const auto& [name, located] : checkpoint.tensors) {
    if (located.is_rounded()) return 0;
    const bool unused = scan.config.tie_word_embeddings && name == scan.family->head;
    const auto view = located.file->view(*located.entry);
    if (!unused && reinterpret_cast<uintptr_t>(view.data()) % kAliasAlignment != 0)
      bytes += static_cast<int64_t>(view.size());
  }
  return bytes;
}

std::string snapshot_stamp(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "config.json" || name == "model.safetensors.index.json" ||
        name.ends_with(".safetensors"))
      files.push_back(stamp_of(at->path()));
  }
  if (error) throw Error(ErrorKind::kBadInput, folder.string() + ": " + error.message());
  if (files.empty())
    throw Error(ErrorKind::kBadInput, folder.string() + ": holds neither config.json nor weights");
  std::sort(files.begin(), files.end());
  return fmt::format("{}", fmt::join(files, ", "));
}

ModelWeights load_shared(const fs::path& folder, const std::string& name, const std::string& lagset,
                         const std::string& sha256, const std::string& stamp) {
  check_stamp(folder, stamp);
  const LoadOptions options{.check_finite = false, .check_manifest = false, .sha256 = sha256};
  ModelWeights weights = is_loadable_config(folder) ? load_folder(folder, name, options)
                                                    : load_outline(folder, name, sha256);
  weights.lagset = lagset;
  check_stamp(folder, stamp);  // the files that were opened are the ones of the stamp
  return weights;
}

}  // namespace mkbench
