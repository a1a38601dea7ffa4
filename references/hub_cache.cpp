#include "references/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/regular_file.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCommitDigits = 40;

// The characters that the hub allows in a name.
bool is_word(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && text.front() != '.' && std::all_of(text.begin(), text.end(), allowed);
}

// Words with slashes between them: the path of a git ref, which cannot lead out of the folder refs.
bool is_revision(std::string_view text) {
  for (size_t slash = text.find('/'); slash != std::string_view::npos; slash = text.find('/')) {
    if (!is_word(text.substr(0, slash))) return false;
    text.remove_prefix(slash + 1);
  }
  return is_word(text);
}

bool is_hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The folders in which the hub's client may have put its cache, most specific first.
std::vector<fs::path> hub_caches() {
  std::vector<fs::path> caches;
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const char* cache = environment_value(name)) caches.emplace_back(cache);
  }
  if (const char* home = environment_value("HF_HOME")) caches.push_back(fs::path(home) / "hub");
  if (const char* cache = environment_value("XDG_CACHE_HOME"))
    caches.push_back(fs::path(cache) / "huggingface" / "hub");
  if (const char* home = environment_value("HOME"))
    caches.push_back(fs::path(home) / ".cache" / "huggingface" / "hub");
  return caches;
}

// The snapshot of one cache; nullopt, with a reason added to `tried`, if the cache has none.
std::optional<HubSnapshot> find_in_cache(const fs::path& cache, const HubName& name,
                                         std::vector<std::string>& tried) {
  const fs::path root = cache / hub_folder_name(name.id);
  if (!is_folder(root)) {
    tried.push_back(root.string() + " (not there)");
    return {};
  }
  const bool is_commit = name.revision.size() == kCommitDigits && is_hex(name.revision);
  std::string commit = name.revision;
  if (!is_commit) {
    const fs::path ref = root / "refs" / name.revision;
    try {
      commit = read_small_file(ref, 256);
    } catch (const Error& error) {
      tried.push_back(error.what());
      return {};
    }
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
    if (!is_hex(commit)) {
      tried.push_back(ref.string() + " holds " + in_quotes(commit) + ", wanted a commit id");
      return {};
    }
  }
  const fs::path snapshot = root / "snapshots" / commit;
  if (!is_folder(snapshot)) {
    const std::string why = is_commit ? "" : ", though refs/" + name.revision + " names it";
    tried.push_back(snapshot.string() + " (not there" + why + ")");
    return {};
  }
  return HubSnapshot{snapshot, commit};
}

}  // namespace

std::optional<HubName> parse_hub_name(const std::string& text) {
  HubName name;
  const size_t at = text.find('@');
  name.id = text.substr(0, at);
  if (at != std::string::npos) name.revision = text.substr(at + 1);
  const size_t slash = name.id.find('/');
  if (slash == std::string::npos || !is_revision(name.revision)) return {};
  const std::string_view id = name.id;
  if (!is_word(id.substr(0, slash)) || !is_word(id.substr(slash + 1))) return {};
  return name;
}

std::string hub_folder_name(const std::string& id) {
  std::string folder = "models--" + id;
  folder.replace(folder.find('/'), 1, "--");
  return folder;
}

std::optional<HubSnapshot> find_hub_snapshot(const HubName& name, std::vector<std::string>& tried) {
  for (const fs::path& cache : hub_caches()) {
    if (const auto found = find_in_cache(cache, name, tried)) return found;
  }
  return {};
}

}  // namespace mkbench
