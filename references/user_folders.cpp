#include "references/user_folders.h"

#include <cstdlib>
#include <string>

#include "references/greedy_reference.h"
#include "references/hub_cache.h"

namespace mkbench {

namespace fs = std::filesystem;

const char* environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

fs::path user_data_dir() {
  if (const char* data = environment_value("XDG_DATA_HOME")) return fs::path(data) / "mkbench";
  if (const char* home = environment_value("HOME"))
    return fs::path(home) / ".local" / "share" / "mkbench";
  return {};
}

fs::path user_cache_dir() {
  if (const char* cache = environment_value("XDG_CACHE_HOME")) return fs::path(cache) / "mkbench";
  if (const char* home = environment_value("HOME")) return fs::path(home) / ".cache" / "mkbench";
  return {};
}

std::vector<fs::path> find_users_references(const Model& model) {
  if (model.row != nullptr) return {};
  std::vector<fs::path> found = list_references(model.folder, "reference");
  if (found.empty()) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(model.folder, ignored);
    found = find_references(model.folder / "reference", folder.filename().string());
  }
  const fs::path data = user_data_dir();
  if (found.empty() && !model.commit.empty() && !data.empty()) {
    const std::string name = hub_folder_name(parse_hub_name(model.name)->id);
    found = list_references(data / "references" / name / model.commit, "reference");
  }
  return found;
}

}  // namespace mkbench
