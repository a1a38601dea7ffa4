#include "references/foreign_folder.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "references/base/error.h"
#include "references/base/file_form.h"
#include "references/base/json_strict.h"
#include "references/base/regular_file.h"
#include "references/hub_cache.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

struct Form {
  std::string_view begin, end;  // of a file's name
  std::string_view text;
};

// Forms of a whole model; a download that ended early cannot be the reason.
constexpr Form kOtherForms[] = {
    {"adapter_config.json", "",
     "a PEFT adapter, which changes another model's weights: merge it into them (PEFT: "
     "merge_and_unload(), then save_pretrained())"},
    {"", ".gguf", kGgufForm},
    {"", ".npz",
     "MLX weights: take the folder from which they were converted, or write them as safetensors"},
    {"", ".distcp",
     "a checkpoint of torch.distributed: write it as safetensors (transformers: save_pretrained(), "
     "or accelerate merge-weights)"},
    {"model_index.json", "", "a pipeline of diffusers, which has no decoder"},
    {"pytorch_model", "",
     "pickled weights, which are never opened because they may run code: write them as "
     "safetensors (transformers: from_pretrained(), then save_pretrained())"},
};
constexpr Form kIncomplete[] = {
    {"", ".incomplete",
     "a file whose download has not ended: repeat the command that fetched it, as hf download "
     "ORG/NAME --local-dir FOLDER"},
};
constexpr Form kParts[] = {
    {"consolidated", "",
     "weights in their publisher's own form: take the folder of the same model for transformers, "
     "with config.json and model.safetensors"},
    {"model-", ".safetensors",
     "shards without model.safetensors.index.json, which says where each tensor is: copy it too"},
    {"", ".safetensors",
     "safetensors by another name: rename the file to model.safetensors if it holds the whole "
     "model"},
};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.insert(at->path().filename().string());
  return names;
}

std::string form_in(const std::set<std::string>& names, std::span<const Form> forms) {
  for (const Form& form : forms) {
    for (const std::string& name : names) {
      // macOS leaves "._NAME" beside a file that it copies to another system.
      if (!name.starts_with("._") && name.starts_with(form.begin) && name.ends_with(form.end))
        return "holds " + in_quotes(name, 60) + ", " + std::string(form.text);
    }
  }
  return {};
}

// A checkpoint in a folder of `folder`, as trainers and archives leave it; or that `folder` is empty.
std::string form_below(const fs::path& folder, const std::set<std::string>& names) {
  std::error_code error;
  if (names.empty()) return fs::is_empty(folder, error) ? "is empty" : "";
  for (const std::string& name : names) {
    if (fs::exists(folder / name / "config.json", error))
      return fmt::format("holds {}, a folder with a config.json: give --model {}",
                         in_quotes(name, 60), (folder / name).string());
  }
  return {};
}

// A place inside the hub client's folder of one model.
struct HubPlace {
  std::string id;        // "Org/Name"
  fs::path root;         // "models--Org--Name"
  std::string snapshot;  // the commit, in a snapshot; else empty
};

std::optional<HubPlace> hub_place(const fs::path& folder) {
  std::error_code ignored;
  fs::path at = fs::absolute(folder, ignored).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  std::string snapshot;
  for (; at.has_relative_path(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    if (at.parent_path().filename() == "snapshots") snapshot = name;
    const size_t dashes = name.find("--", 8);
    if (!name.starts_with("models--") || dashes == std::string::npos) continue;
    const std::string id = name.substr(8, dashes - 8) + "/" + name.substr(dashes + 2);
    if (parse_hub_name(id)) return HubPlace{id, at, snapshot};
  }
  return std::nullopt;
}

std::string fetch_command(const HubPlace& place) {
  std::string commit;
  try {
    commit = read_small_file(place.root / "refs" / "main", 256);
  } catch (const Error&) {  // the model may have been fetched by its commit
  }
  const bool is_main = place.snapshot.empty() || commit.starts_with(place.snapshot);
  return "mkbench fetch " + place.id + (is_main ? "" : "@" + place.snapshot);
}

std::string hub_form(const fs::path& folder) {
  const std::optional<HubPlace> place = hub_place(folder);
  if (!place) return {};
  if (!place->snapshot.empty())
    return fmt::format("is a snapshot of {} whose download is not complete; to complete it: {}",
                       place->id, fetch_command(*place));
  const std::set<std::string> snapshots = names_in(place->root / "snapshots");
  if (snapshots.empty())
    return fmt::format(
        "is of the hub client's cache of {}, which holds no snapshot: its download "
        "is not complete; to complete it: {}",
        place->id, fetch_command(*place));
  return fmt::format("is of the hub client's cache of {}, not a snapshot: give --model {}, or {}",
                     place->id, place->id,
                     (place->root / "snapshots" / *snapshots.begin()).string());
}

}  // namespace

std::string foreign_folder(const fs::path& folder) {
  const std::set<std::string> names = names_in(folder);
  // The loader reads such weights; what the folder lacks is something else.
  if (names.contains("model.safetensors") || names.contains("model.safetensors.index.json"))
    return hub_form(folder);
  std::string form = form_in(names, kOtherForms);
  if (form.empty()) form = hub_form(folder);
  if (form.empty()) form = form_in(names, kIncomplete);
  if (form.empty()) form = form_in(names, kParts);
  const fs::path download = fs::path(".cache") / "huggingface" / "download";
  if (form.empty()) form = form_in(names_in(folder / download), std::span(kIncomplete));
  return form.empty() ? form_below(folder, names) : form;
}

void check_link(const fs::path& file) {
  std::error_code error;
  if (fs::symlink_status(file, error).type() != fs::file_type::symlink) return;
  if (fs::exists(file, error) || error) return;
  const std::optional<HubPlace> place = hub_place(file.parent_path());
  bad_input(
      file.string(),
      fmt::format("is a link to {}, which is not there: {}", fs::read_symlink(file, error).string(),
                  place ? "the download is not complete; to complete it: " + fetch_command(*place)
                        : "the download or copy is not complete; copy the files that links "
                          "name too (cp -L, rsync -L)"));
}

}  // namespace mkbench
