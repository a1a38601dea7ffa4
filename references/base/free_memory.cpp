#include "references/base/free_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// The names of one cgroup version's files, and of the counters of page cache in its memory.stat.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* active_cache;
  const char* inactive_cache;
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_active_file", "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "active_file", "inactive_file"};

// The number at the start of a file; nullopt for "max" or a missing file.
std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// The value in a line "key value" or "key: value"; nullopt if no line has the key.
std::optional<uint64_t> read_field(const fs::path& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && (name == key || name == key + ":")) return value;
  }
  return std::nullopt;
}

void limit_to(FreeMemory& free, uint64_t bytes, const std::string& limit) {
  if (bytes >= free.bytes) return;
  free.bytes = bytes;
  free.limit = limit;
}

void limit_to_group(FreeMemory& free, const fs::path& folder, const CgroupFiles& files) {
  const auto limit = read_number(folder / files.limit);
  const auto usage = read_number(folder / files.usage);
  if (!limit) return;
  free.total = std::min(free.total, *limit);
  if (!usage) return;
  const uint64_t cache = read_field(folder / "memory.stat", files.active_cache).value_or(0) +
                         read_field(folder / "memory.stat", files.inactive_cache).value_or(0);
  const uint64_t held = *usage - std::min(*usage, cache);
  limit_to(free, *limit - std::min(*limit, held), (folder / files.limit).string());
}

uint64_t megabytes(uint64_t bytes) { return bytes / 1'000'000; }

}  // namespace

// A group's limit holds for all groups below it, so every folder up to the mount is listed. A
// container may see its own group as the mount's root although /proc names a longer path.
std::vector<CgroupFolder> cgroup_folders(const fs::path& root, std::string_view controller) {
  std::vector<CgroupFolder> folders;
  // Lines of /proc/self/cgroup are "4:cpu,memory:/group" in version 1 and "0::/group" in version 2.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos)
      continue;
    const fs::path cgroups = root / "sys/fs/cgroup";
    const fs::path mount = version2 ? cgroups : cgroups / controller;
    fs::path below = fs::path(line.substr(second + 1)).relative_path();
    for (; !below.empty(); below = below.parent_path())
      folders.push_back({mount / below, version2});
    folders.push_back({mount, version2});
  }
  return folders;
}

FreeMemory free_memory(const fs::path& root) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  FreeMemory free{kNoLimit, "", kNoLimit};
  if (const auto kilobytes = read_field(root / "proc/meminfo", "MemAvailable"))
    limit_to(free, 1024 * *kilobytes, "MemAvailable");
  if (const auto kilobytes = read_field(root / "proc/meminfo", "MemTotal"))
    free.total = 1024 * *kilobytes;
  for (const CgroupFolder& folder : cgroup_folders(root, "memory"))
    limit_to_group(free, folder.path, folder.version2 ? kVersion2 : kVersion1);
  if (free.total == kNoLimit) free.total = 0;
  return free;
}

void check_free_memory(uint64_t bytes, const std::string& what, const fs::path& root) {
  const FreeMemory free = free_memory(root);
  if (bytes <= free.bytes) return;
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("{} needs {} MB of memory, {} MB are free (by {})", what,
                          megabytes(bytes + 999'999), megabytes(free.bytes), free.limit));
}

}  // namespace mkbench
