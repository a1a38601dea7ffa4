#include "references/foreign_folder.h"

#include <set>
#include <string_view>

#include "references/base/json_strict.h"

namespace mkbench {
namespace {

struct Form {
  std::string_view begin, end;  // of a file's name
  std::string_view text;
};

constexpr Form kForms[] = {
    {"adapter_config.json", "",
     "a PEFT adapter, which changes another model's weights: merge it into them (PEFT: "
     "merge_and_unload(), then save_pretrained())"},
    {"", ".gguf",
     "a GGUF file: write it as safetensors (transformers: from_pretrained(FOLDER, "
     "gguf_file=NAME), then save_pretrained())"},
    {"", ".npz",
     "MLX weights: take the folder from which they were converted, or write them as safetensors"},
    {"model-", ".safetensors",
     "shards without model.safetensors.index.json, which says where each tensor is: copy it too"},
    {"", ".safetensors",
     "safetensors by another name: rename the file to model.safetensors if it holds the whole "
     "model"},
    {"pytorch_model", "",
     "pickled weights, which are never opened because they may run code: write them as "
     "safetensors (transformers: from_pretrained(), then save_pretrained())"},
};

}  // namespace

std::string foreign_folder(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    names.insert(at->path().filename().string());
  // The loader reads such a folder; what it lacks is something else.
  if (names.contains("model.safetensors") || names.contains("model.safetensors.index.json"))
    return {};
  for (const Form& form : kForms) {
    for (const std::string& name : names) {
      if (name.starts_with(form.begin) && name.ends_with(form.end))
        return in_quotes(name, 60) + ", " + std::string(form.text);
    }
  }
  return {};
}

}  // namespace mkbench
