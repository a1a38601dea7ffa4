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

// The number at the start of a file; nothing for "max" or a file that is not there.
std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// The value in a line "key value" or "key: value"; nothing where no line has it.
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
  if (bytes < free.bytes) free = {bytes, limit};
}

// A group's limit holds for all groups below it, so every folder up to `mount` is looked at. A
// container may see its own group as the mount's root though its name is a longer one.
void limit_to_groups(FreeMemory& free, const fs::path& mount, const std::string& group,
                     const CgroupFiles& files) {
  fs::path below = fs::path(group).relative_path();
  for (bool more = true; more;) {
    const fs::path folder = mount / below;
    const auto limit = read_number(folder / files.limit);
    const auto usage = read_number(folder / files.usage);
    if (limit && usage) {
      const uint64_t cache = read_field(folder / "memory.stat", files.active_cache).value_or(0) +
                             read_field(folder / "memory.stat", files.inactive_cache).value_or(0);
      const uint64_t held = *usage - std::min(*usage, cache);
      limit_to(free, *limit - std::min(*limit, held), (folder / files.limit).string());
    }
    more = !below.empty();
    below = below.parent_path();
  }
}

uint64_t megabytes(uint64_t bytes) { return bytes / 1'000'000; }

}  // namespace

FreeMemory free_memory(const fs::path& root) {
  FreeMemory free{std::numeric_limits<uint64_t>::max(), ""};
  if (const auto kilobytes = read_field(root / "proc/meminfo", "MemAvailable"))
    limit_to(free, 1024 * *kilobytes, "MemAvailable");
  // Lines of /proc/self/cgroup are "4:cpu,memory:/group" in version 1 and "0::/group" in version 2.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    const fs::path mount = root / "sys/fs/cgroup";
    if (controllers == ",,") {
      limit_to_groups(free, mount, group, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit_to_groups(free, mount / "memory", group, kVersion1);
    }
  }
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
