// How much memory this process can still take before the machine or its container refuses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

struct FreeMemory {
  uint64_t bytes = 0;
  std::string limit;   // what limits `bytes`: "MemAvailable" or the cgroup's file
  uint64_t total = 0;  // the smallest of MemTotal and the groups' limits; 0 where that is not known
};

// The folder of a control group to which this process belongs, directly or through subgroups.
struct CgroupFolder {
  std::filesystem::path path;
  bool version2 = false;
};
// The folders, below `root`, of every group above this process that can limit `controller` ("cpu",
// "memory"): its own group first, then the enclosing groups.
std::vector<CgroupFolder> cgroup_folders(const std::filesystem::path& root,
                                         std::string_view controller);

// The smallest of MemAvailable and what each memory cgroup (v1 or v2) above this process leaves;
// page cache counts as free, because the kernel drops it first. All files are read below `root`.
// A file that is not there sets no limit.
FreeMemory free_memory(const std::filesystem::path& root = "/");

// Throws Error(kEnvUnfit) with both sizes in MB, beginning with `what`, when `bytes` do not fit.
void check_free_memory(uint64_t bytes, const std::string& what,
                       const std::filesystem::path& root = "/");

}  // namespace mkbench
