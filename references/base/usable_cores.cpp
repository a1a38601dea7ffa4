#include "references/base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "references/base/free_memory.h"

namespace mkbench {

double usable_cores(const std::filesystem::path& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                             : std::thread::hardware_concurrency();
  for (const CgroupFolder& folder : cgroup_folders(root, "cpu")) {
    double quota = 0, period = 0;  // microseconds; "max" or -1 is no quota
    if (folder.version2) {
      std::ifstream(folder.path / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(folder.path / "cpu.cfs_quota_us") >> quota;
      std::ifstream(folder.path / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
  }
  return cores;
}

}  // namespace mkbench
