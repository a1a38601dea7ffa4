#include "references/inspection.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/checkpoint_rules.h"
#include "references/inspection_facts.h"
#include "references/left_over.h"
#include "references/manifest.h"
#include "references/runnable.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMostLayers = 1'024;
constexpr size_t kHashDigits = 64;

// The number of layers by the names of tensors, for a config that lacks it.
int layers_in(const Checkpoint& checkpoint, const Family& family) {
  const std::string prefix = std::string(family.trunk) + "layers.";
  int layers = 0;
  for (auto at = checkpoint.tensors.lower_bound(prefix);
       at != checkpoint.tensors.end() && at->first.starts_with(prefix); ++at) {
    const char* const begin = at->first.data() + prefix.size();
    int layer = 0;
    const auto read = std::from_chars(begin, at->first.data() + at->first.size(), layer);
    if (read.ec == std::errc() && layer < kMostLayers) layers = std::max(layers, layer + 1);
  }
  return layers;
}

// Looks at one folder, part by part.
class FolderInspector {
 public:
  FolderInspector(const fs::path& folder, bool values, ModelFindings& findings)
      : folder_(folder), values_(values), findings_(findings) {}

  // Dimensions that could not be read are 0.
  ModelConfig inspect() {
    const fs::path config_path = folder_ / "config.json";
    const json root = read_config_json(config_path);
    scan_ = scan_config(root, config_path.string(), findings_);
    if (root.is_object()) add_config_facts(root, scan_, findings_);
    checkpoint_ = open_checkpoint(folder_, findings_);
    if (checkpoint_.opened) {
      settle_prefix(checkpoint_, *scan_.family, findings_);
      inspect_tensors();
      add_tensor_facts(scan_, checkpoint_, findings_);
    }
    check_manifest();
    add_hashes();
    for (const auto& file : checkpoint_.files)
      attempt(findings_, file->path(), "weights", [&] { file->check_unchanged(); });
    return scan_.config;
  }
  // Hash over all tensors; empty unless all of them are there, sound and read.
  const std::string& tensors_sha256() const { return tensors_sha256_; }

 private:
  std::vector<NamedTensor> table() const {
    ModelConfig config = scan_.config;
    if (config.shape.layers == 0) config.shape.layers = layers_in(checkpoint_, *scan_.family);
    return tensor_table_of(*scan_.family, config);
  }

  void inspect_tensors() {
    const std::vector<NamedTensor> expected = table();
    // Where the tie is not known, a missing head is no defect of its own.
    const bool may_lack_head = scan_.config.tie_word_embeddings || !scan_.tie_is_known;
    check_names(checkpoint_, expected, may_lack_head, *scan_.family, findings_);
    note_left_over(checkpoint_, scan_, findings_);
    Sha256 hash;
    bool is_whole = true;
    for (const NamedTensor& t : expected) {
      const bool is_tied_head =
          scan_.config.tie_word_embeddings && t.global == &ModelWeights::lm_head;
      const auto found = checkpoint_.tensors.find(t.name);
      if (found == checkpoint_.tensors.end()) {
        is_whole = is_whole && is_tied_head;
      } else if (!inspect_tensor(found->second, t, is_tied_head, hash)) {
        is_whole = false;
      }
    }
    add_head(is_whole);
    if (const std::string rounded = rounded_types(checkpoint_, expected); !rounded.empty())
      inform(findings_, "rounded to bf16", rounded,
             fs::path(checkpoint_.names_file).filename().string(), "none");
    if (values_ && is_whole) tensors_sha256_ = hash.hex();
  }

  bool inspect_tensor(const Located& located, const NamedTensor& t, bool is_tied_head,
                      Sha256& hash) {
    if (!check_type_and_shape(located, t, scan_.config.shape, folder_ / "config.json", findings_))
      return false;
    return attempt(findings_, located.file->path(), "tensor values", [&] {
      if (is_tied_head) return compare_heads(located);
      if (!values_) return;
      check_values(
          located, t, /*check_finite=*/true,
          [&](std::span<const Bf16> values) { hash.update(values.data(), values.size_bytes()); },
          findings_);
    });
  }

  void compare_heads(const Located& head) {
    const auto embed = checkpoint_.tensors.find(std::string(scan_.family->embedding));
    const bool is_comparable = embed != checkpoint_.tensors.end() &&
                               is_read_type(embed->second.entry->dtype) &&
                               embed->second.entry->shape == head.entry->shape;
    if (is_comparable)
      check_tied_head(embed->second, head, static_cast<int>(head.entry->shape.back()), findings_);
  }

  void add_head(bool is_whole) {
    if (!scan_.tie_is_known || !is_whole) return;
    const std::string name(scan_.family->head);
    const bool in_file = checkpoint_.tensors.contains(name);
    const bool tied = scan_.config.tie_word_embeddings;
    inform(findings_, "LM head",
           !tied     ? name + ", untied"
           : in_file ? fmt::format("the embedding; {} is in the file too", name)
                     : fmt::format("the embedding; there is no {}", name),
           "config.json:tie_word_embeddings");
  }

  // Checks sizes, and hashes if values are read. An unlisted config.json (the user's own) passes.
  void check_manifest() {
    const fs::path path = folder_ / "manifest.json";
    std::optional<Manifest> manifest;
    attempt(findings_, path, "manifest", [&] { manifest = Manifest::of(folder_); });
    if (!manifest) return;
    const fs::path config = folder_ / "config.json";
    attempt(findings_, config, "manifest", [&] {
      if (manifest->lists(config)) manifest->check(config, sha256_file(config));
    });
    for (const auto& file : checkpoint_.files) {
      attempt(findings_, file->path(), "manifest", [&] {
        if (values_) {
          manifest->check(file->path(), sha256_file(file->path()));
        } else {
          manifest->check_size(file->path());
        }
      });
    }
  }

  void add_hashes() {
    inform(findings_, "sha256", sha256_file(folder_ / "config.json"), "config.json");
    for (const auto& file : checkpoint_.files) {
      std::error_code ignored;
      // The hub's cache names a file of weights by its hash.
      const std::string blob = fs::read_symlink(file->path(), ignored).filename().string();
      const bool is_hash = blob.size() == kHashDigits &&
                           blob.find_first_not_of("0123456789abcdef") == std::string::npos;
      inform(findings_, "size",
             fmt::format("{} bytes{}", file->file_bytes(),
                         is_hash ? "; the hub's cache names it " + blob : ""),
             fs::path(file->path()).filename().string());
    }
    if (!tensors_sha256_.empty())
      inform(findings_, "sha256 of all tensors", tensors_sha256_,
             fs::path(checkpoint_.names_file).filename().string());
  }

  const fs::path folder_;
  const bool values_;
  ModelFindings& findings_;
  ConfigScan scan_;
  Checkpoint checkpoint_;
  std::string tensors_sha256_;
};

size_t count_of(const std::vector<ModelFinding>& findings, Severity severity) {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const ModelFinding& f) { return f.severity == severity; }));
}

void judge(Inspection& inspection, const ModelShape& shape) {
  const std::vector<ModelFinding>& all = inspection.findings;
  const size_t fatal = count_of(all, Severity::kFatal);
  const size_t unsupported = count_of(all, Severity::kUnsupported);
  const size_t rebuild = count_of(all, Severity::kNeedsRebuild);
  const CompiledShape& compiled = nearest_compiled(shape);
  const auto foreign = std::find_if(all.begin(), all.end(), [](const ModelFinding& f) {
    return f.severity == Severity::kUnsupported && f.field == "model_type";
  });
  if (foreign != all.end()) {
    // The other findings hold this model to another family's rules.
    inspection.verdict = Runs::kNo;
    inspection.verdict_text = fmt::format(
        "not runnable by mkbench's own engines: {}; where transformers loads the folder, it judges "
        "engines in Python there: mkbench --model FOLDER --engine FILE.py",
        foreign->text);
  } else if (fatal + unsupported > 0) {
    const Severity worst = fatal > 0 ? Severity::kFatal : Severity::kUnsupported;
    const auto first = std::find_if(all.begin(), all.end(),
                                    [&](const ModelFinding& f) { return f.severity == worst; });
    inspection.verdict = Runs::kNo;
    inspection.verdict_text = fmt::format(
        "not runnable: {} fatal, {} unsupported, {} that need a rebuild; because {}: {}", fatal,
        unsupported, rebuild, first->source, first->text);
  } else if (rebuild > 0) {
    inspection.verdict = Runs::kAfterRebuild;
    inspection.verdict_text = fmt::format(
        "runnable after a rebuild: {} dimension{} or part{} of a layer differ{} from {}, the "
        "nearest that the kernels are compiled for; eager, graph and host-twin run it as it is",
        rebuild, rebuild == 1 ? "" : "s", rebuild == 1 ? "" : "s", rebuild == 1 ? "s" : "",
        compiled.name);
  } else {
    inspection.verdict = Runs::kYes;
    inspection.verdict_text =
        fmt::format("runnable: the kernels are compiled for the layers of {}", compiled.name);
  }
}

// Throws Error(kBadInput) where there is no folder to look at.
void check_folder(const fs::path& folder) {
  struct stat info {};
  const bool is_there = stat(folder.c_str(), &info) == 0;
  if (is_there && S_ISDIR(info.st_mode)) return;
  throw Error(ErrorKind::kBadInput, folder.string() + ": " +
                                        (is_there ? "wanted a folder with config.json and weights"
                                                  : std::strerror(errno)));
}

// Compares the weights with the hash in the model's row, if it has one.
void check_row(const Model& model, const std::string& sha256, ModelFindings& findings) {
  const std::string_view wanted = model.row != nullptr ? model.row->weights_sha256 : "";
  if (wanted.empty() || sha256.empty() || sha256 == wanted) return;
  findings.add({.severity = Severity::kFatal,
                .field = "sha256 of all tensors",
                .expected = std::string(wanted),
                .found = sha256,
                .source = model.name,
                .text = fmt::format("weights: found sha256 {}, wanted {}", sha256, wanted)},
               model.folder.string());
}

}  // namespace

Inspection inspect_model(const Model& model, bool values) {
  Inspection inspection;
  inspection.model = model.name;
  inspection.commit = model.commit;
  inspection.values_read = values;
  ModelFindings findings(ModelFindings::Mode::kCollect);
  ModelConfig config;
  if (is_analytic(model.row)) {
    config = synthetic_config(*model.row->published);
    add_shape_facts(config, "mkbench:", findings);
    inform(findings, "weights", "made in memory", model.name);
  } else {
    check_folder(model.folder);
    inspection.folder = model.folder.string();
    FolderInspector inspector(model.folder, values, findings);
    config = inspector.inspect();
    check_row(model, inspector.tensors_sha256(), findings);
  }
  inspection.findings = findings.all();
  inspection.shape = published_shape(config.shape);
  std::stable_sort(
      inspection.findings.begin(), inspection.findings.end(),
      [](const ModelFinding& a, const ModelFinding& b) { return a.severity > b.severity; });
  judge(inspection, config.shape);
  return inspection;
}

}  // namespace mkbench
