#include "references/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/shared_snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kBadInput, what); }

// The value of an environment variable, or null where it is unset or empty.
const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A hub id is "Org/Name": exactly one slash, and only characters that the hub allows.
bool is_hub_id(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return false;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const std::string name = text.substr(slash + 1);
  return text[0] != '.' && name[0] != '.' &&
         std::all_of(text.begin(), text.begin() + static_cast<long>(slash), allowed) &&
         std::all_of(name.begin(), name.end(), allowed);
}

// The folders in which the hub's client may have put its cache, most specific first.
std::vector<fs::path> hub_caches() {
  std::vector<fs::path> caches;
  if (const char* cache = environment("HF_HUB_CACHE")) caches.emplace_back(cache);
  if (const char* home = environment("HF_HOME")) caches.push_back(fs::path(home) / "hub");
  if (const char* home = environment("HOME"))
    caches.push_back(fs::path(home) / ".cache" / "huggingface" / "hub");
  return caches;
}

// The snapshot that refs/main names; empty, with a reason in `tried`, when this cache has none.
fs::path find_snapshot(const fs::path& cache, const std::string& id,
                       std::vector<std::string>& tried) {
  std::string repository = "models--" + id;
  repository.replace(repository.find('/'), 1, "--");
  const fs::path root = cache / repository;
  if (!is_folder(root)) {
    tried.push_back(root.string() + " (not there)");
    return {};
  }
  const fs::path main_ref = root / "refs" / "main";
  std::string revision;
  try {
    revision = read_small_file(main_ref, 256);
  } catch (const Error& error) {
    tried.push_back(error.what());
    return {};
  }
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == ' '))
    revision.pop_back();
  const bool plain = !revision.empty() && std::all_of(revision.begin(), revision.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (!plain) {
    tried.push_back(main_ref.string() + " holds " + in_quotes(revision) + ", wanted a commit id");
    return {};
  }
  const fs::path snapshot = root / "snapshots" / revision;
  if (!is_folder(snapshot)) {
    tried.push_back(snapshot.string() + " (not there, though refs/main names it)");
    return {};
  }
  return snapshot;
}

ModelSpec resolve_row(const ModelRow& row) {
  ModelSpec spec{&row, std::string(row.name), {}};
  if (row.source == ModelSource::kAnalytic) return spec;
  spec.folder = data_dir() / spec.name;
  if (!is_folder(spec.folder))
    fail(
        fmt::format("--model {}: {} is not there (MKBENCH_DATA_DIR says where the committed "
                    "checkpoints are)",
                    spec.name, spec.folder.string()));
  return spec;
}

std::string known_names() {
  std::string names;
  for (const ModelRow& row : model_rows()) {
    if (row.help.empty()) continue;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
    if (row.source == ModelSource::kAnalytic) names += "[:LAGSET]";
  }
  return names;
}

}  // namespace

fs::path data_dir() {
  if (const char* folder = environment("MKBENCH_DATA_DIR")) return folder;
  return fs::path(MKBENCH_SOURCE_DIR) / "references" / "data";
}

ModelSpec resolve_model(const std::string& text) {
  if (text.empty()) fail("--model: empty name");
  if (const ModelRow* row = find_model(text)) return resolve_row(*row);
  if (text.starts_with("synthetic:")) synthetic_lags(text.substr(10));  // throws, listing the names
  if (is_folder(text)) return {nullptr, text, text};

  std::vector<std::string> tried = {known_names()};
  std::error_code ignored;
  tried.push_back(fmt::format("folder {} ({})", in_quotes(text, 300),
                              fs::exists(text, ignored) ? "is a file" : "not there"));
  if (is_hub_id(text)) {
    for (const fs::path& cache : hub_caches()) {
      const fs::path snapshot = find_snapshot(cache, text, tried);
      if (!snapshot.empty()) return {nullptr, text, snapshot};
    }
  } else {
    tried.push_back("hub id Org/Name (not of that form)");
  }
  fail(fmt::format("--model {}: no such model; tried {}", in_quotes(text, 300),
                   fmt::join(tried, "; ")));
}

ModelConfig model_config(const std::string& model) {
  const ModelSpec spec = resolve_model(model);
  if (!is_analytic(spec.row)) return read_config(spec.folder / "config.json");
  ModelConfig config;  // all else is set when the weights are made
  config.shape = spec.row->shape;
  config.tie_word_embeddings = spec.row->tied;
  return config;
}

std::string model_at_depth(const std::string& model, int depth) {
  const ModelRow* row = find_model(model);
  if (!is_analytic(row) || !row->lagset.empty()) return model;
  return fmt::format("{}:{}", row->name, synthetic_lagset_for_depth(depth));
}

ModelWeights load_model(const ModelSpec& spec, int depth, const LoadOptions& options) {
  if (is_analytic(spec.row)) {
    const std::string_view lagset =
        spec.row->lagset.empty() ? synthetic_lagset_for_depth(depth) : spec.row->lagset;
    return options.share ? make_shared_synthetic(lagset) : make_synthetic(lagset);
  }
  ModelWeights weights = load_folder(spec.folder, spec.name, options);
  const std::string_view wanted = spec.row != nullptr ? spec.row->weights_sha256 : "";
  if (!wanted.empty() && weights.sha256 != wanted) {
    fail(fmt::format("--model {}: weights of {}: found sha256 {}, wanted {}", spec.name,
                     spec.folder.string(), weights.sha256, wanted));
  }
  return weights;
}

}  // namespace mkbench
