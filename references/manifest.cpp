#include "references/manifest.h"

#include <fmt/format.h>

#include <system_error>

#include "references/base/error.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void fail(const fs::path& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where.string() + ": " + what);
}

}  // namespace

std::optional<Manifest> Manifest::of(const fs::path& folder) {
  Manifest manifest;
  manifest.path_ = folder / "manifest.json";
  std::error_code ignored;
  // A dangling link counts as a manifest that is there, and reading it fails below.
  if (fs::symlink_status(manifest.path_, ignored).type() == fs::file_type::not_found) return {};
  const json document = read_json_strict(manifest.path_);
  if (!document.is_object() || !document.contains("files")) return {};
  const json& files = document["files"];
  if (!files.is_object())
    fail(manifest.path_, "files is " + describe(files) + ", wanted an object");
  for (const auto& [name, listed] : files.items()) {
    Entry entry;
    const bool has_hash =
        listed.is_object() && listed.contains("sha256") && listed["sha256"].is_string();
    if (!has_hash) fail(manifest.path_, in_quotes(name) + " has no sha256 string");
    entry.sha256 = listed["sha256"].get<std::string>();
    if (listed.contains("bytes")) {
      if (!listed["bytes"].is_number_unsigned()) {
        fail(manifest.path_, fmt::format("{} has {} bytes, wanted an integer from 0",
                                         in_quotes(name), describe(listed["bytes"])));
      }
      entry.bytes = listed["bytes"].get<uint64_t>();
    }
    manifest.files_.emplace(name, std::move(entry));
  }
  return manifest;
}

bool Manifest::lists(const fs::path& file) const {
  return files_.count(file.filename().string()) > 0;
}

void Manifest::check_size(const fs::path& file) const {
  const auto entry = files_.find(file.filename().string());
  if (entry == files_.end())
    fail(path_, in_quotes(file.filename().string()) + " is not listed under files");
  const uint64_t bytes = fs::file_size(file);
  if (entry->second.bytes && *entry->second.bytes != bytes) {
    fail(file, fmt::format("{} bytes, {} says {}", bytes, path_.string(), *entry->second.bytes));
  }
}

void Manifest::check(const fs::path& file, const std::string& sha256) const {
  check_size(file);
  const std::string& listed = files_.at(file.filename().string()).sha256;
  if (listed != sha256) {
    fail(file, fmt::format("sha256 is {}, {} says {}", sha256, path_.string(), in_quotes(listed)));
  }
}

}  // namespace mkbench
