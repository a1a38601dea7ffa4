#include "references/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/base/file_form.h"
#include "references/base/json_strict.h"
#include "references/base/regular_file.h"
#include "references/config.h"
#include "references/hub_cache.h"
#include "references/outline.h"
#include "references/shared_snapshot.h"
#include "references/synthetic.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kBadInput, what); }

Model resolve_row(const ModelRow& row) {
  Model model{.row = &row, .name = std::string(row.name)};
  if (row.source == ModelSource::kAnalytic) return model;
  if (row.source == ModelSource::kFetched) {
    model.folder = user_cache_dir() / "models" / model.name;
    if (!fs::exists(model.folder / "manifest.json"))
      fail(fmt::format("--model {}: {} is not there; to fetch it: mkbench fetch {}", model.name,
                       model.folder.string(), model.name));
    return model;
  }
  model.folder = data_dir() / model.name;
  if (!is_folder(model.folder))
    fail(
        fmt::format("--model {}: {} is not there (MKBENCH_DATA_DIR says where the committed "
                    "checkpoints are)",
                    model.name, model.folder.string()));
  return model;
}

std::string known_names() {
  std::string names;
  for (const ModelRow& row : model_rows()) {
    if (row.help.empty()) continue;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
    if (is_analytic(&row)) names += "[:LAGSET]";
  }
  return names;
}

// `text` names no row: its shape or its lag set is unknown.
[[noreturn]] void refuse_synthetic(const std::string& text) {
  for (const ShapeRow& row : kPublishedModels) {
    const std::string name = synthetic_name(row), obstacle = synthetic_obstacle(row);
    if (obstacle.empty() || (text != name && !text.starts_with(name + ":"))) continue;
    fail(
        fmt::format("--model {}: no closed form for this row ({}); a live reference judges its own "
                    "weights: name their folder",
                    in_quotes(text, 300), obstacle));
  }
  const size_t colon = text.rfind(':');
  if (colon == 9 || find_model(text.substr(0, colon))) synthetic_lags(text.substr(colon + 1));
  fail(fmt::format("--model {}: wanted synthetic[:SHAPE][:LAGSET]; shapes and lag sets: {}",
                   in_quotes(text, 300), known_names()));
}

// `text` is a path of something else than a folder.
[[noreturn]] void refuse_file(const fs::path& file) {
  std::string form;
  try {
    const RegularFile opened(file);
    std::string head(std::min<uint64_t>(opened.size(), kFormBytes), '\0');
    opened.read_at(0, head.data(), head.size());
    form = file_form(head);
  } catch (const Error&) {  // of another user, or special
  }
  std::error_code ignored;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (form.empty() && fs::exists(folder / "config.json", ignored))
    form = "give the folder: --model " + folder.string();
  fail(fmt::format("--model {}: is a file, wanted a folder with config.json and weights{}{}",
                   in_quotes(file.string(), 300), form.empty() ? "" : "; ", form));
}

// Advice for a text that is neither a path nor a hub name, but resembles one.
std::string name_meant(std::string_view text) {
  if (text.starts_with("~")) return "; '~' reached mkbench as it is: write $HOME instead";
  constexpr std::string_view kFile = "file://";
  if (text.starts_with(kFile))
    return "; give the path alone: --model " + std::string(text.substr(kFile.size()));
  for (const std::string_view hub : {"huggingface.co/", "hf.co/", "hf-mirror.com/", "hf://"}) {
    const size_t at = text.find(hub);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = text.substr(at + hub.size());
    const size_t end = rest.find_first_of("/:?@", rest.find('/') + 1);
    if (const auto name = parse_hub_name(std::string(rest.substr(0, end))))
      return fmt::format("; give the hub's name alone: mkbench fetch {}, then --model {}", name->id,
                         name->id);
  }
  return {};
}

void choose_truth(TruthChoice choice, Model& model) {
  if (choice == TruthChoice::kMkbench) return;
  const bool dequantised = choice == TruthChoice::kDequantised;
  const bool asked = dequantised || choice == TruthChoice::kTransformers;
  if (is_analytic(model.row)) {
    if (asked)
      fail(fmt::format(
          "--truth {}: --model {} is made in memory and judged by its closed form; name a folder",
          dequantised ? "dequantised" : "transformers", model.name));
    return;
  }
  if (!asked && (model.row != nullptr || !is_foreign_model(model.folder))) return;
  if (std::error_code ignored; fs::exists(model.folder / "adapter_config.json", ignored))
    fail(fmt::format(
        "--model {}: the folder holds adapter_config.json, which transformers applies or "
        "not by the packages that it finds: merge the adapter, or move that file",
        model.name));
  model.truth = Truth::kTransformers;
  model.dequantised = dequantised;
  model.is_outline = !is_loadable_config(model.folder);
}

Model find_model_by_text(const std::string& text) {
  if (text.empty()) fail("--model: empty name");
  if (const ModelRow* row = find_model(text)) return resolve_row(*row);
  if (text.starts_with("synthetic:")) refuse_synthetic(text);
  if (is_folder(text)) return {.name = text, .folder = text};

  std::error_code ignored;
  if (fs::exists(text, ignored)) refuse_file(text);
  std::vector<std::string> tried = {fmt::format("folder {} (not there)", in_quotes(text, 300))};
  std::string advice;
  if (const std::optional<HubName> name = parse_hub_name(text)) {
    if (const auto found = find_hub_snapshot(*name, tried))
      return {.name = text, .folder = found->folder, .commit = found->commit};
    advice = fmt::format("; to fetch it: mkbench fetch {}", text);
  } else {
    tried.push_back("hub name Org/Name or Org/Name@REVISION (not of that form)");
    advice = name_meant(text);
  }
  fail(fmt::format("--model {}: no such model{}; tried {}; names: {}", in_quotes(text, 300), advice,
                   fmt::join(tried, "; "), known_names()));
}

}  // namespace

fs::path data_dir() {
  if (const char* folder = environment_value("MKBENCH_DATA_DIR")) return folder;
  return data_root() / "references" / "data";
}

Model resolve_model(const std::string& text, TruthChoice truth) {
  Model model = find_model_by_text(text);
  choose_truth(truth, model);
  return model;
}

ModelConfig model_config(const Model& model) {
  if (model.is_outline) return outline_config(model.folder);
  if (!is_analytic(model.row)) return read_config(model.folder / "config.json");
  return synthetic_config(*model.row->published);
}

Model model_at_depth(const Model& model, int depth) {
  if (!is_analytic(model.row) || !model.row->lagset.empty()) return model;
  return salted(
      resolve_model(fmt::format("{}:{}", model.row->name, synthetic_lagset_for_depth(depth))),
      model.salt);
}

Model salted(Model model, uint64_t salt) {
  if (is_analytic(model.row)) model.salt = salt;
  return model;
}

Model parity_model(const Model& model) {
  return is_analytic(model.row) ? resolve_model(std::string(model.row->parity_set)) : model;
}

ModelWeights load_model(const Model& model, const LoadOptions& options) {
  if (is_analytic(model.row)) {
    const std::string_view lagset = model_at_depth(model, 0).row->lagset;
    const ShapeRow& shape = *model.row->published;
    return options.share ? make_shared_synthetic(shape, lagset, 0, model.salt)
                         : make_synthetic(shape, lagset, 0, {}, model.salt);
  }
  if (model.is_outline) return load_outline(model.folder, model.name);
  ModelWeights weights = load_folder(model.folder, model.name, options);
  const std::string_view wanted = model.row != nullptr ? model.row->weights_sha256 : "";
  if (!wanted.empty() && weights.sha256 != wanted) {
    fail(fmt::format("--model {}: weights of {}: found sha256 {}, wanted {}", model.name,
                     model.folder.string(), weights.sha256, wanted));
  }
  return weights;
}

}  // namespace mkbench
