#include "harness/device/cpu_pressure.h"

#include <fmt/format.h>

#include <fstream>

#include "references/base/free_memory.h"

namespace mkbench {
namespace {

constexpr double kMostStolen = 0.05;  // of all CPU time

}  // namespace

CpuReading read_cpu(const std::filesystem::path& root) {
  CpuReading reading;
  for (const CgroupFolder& folder : cgroup_folders(root, "cpu")) {
    std::ifstream file(folder.path / "cpu.stat");
    int64_t count = 0;
    for (std::string key; file >> key >> count;) {
      if (key == "nr_throttled") reading.throttled += count;
    }
  }
  // "cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ..": the guests' time that follows is also
  // in USER and NICE.
  constexpr int kSteal = 7;
  std::ifstream stat(root / "proc/stat");
  std::string cpu;
  stat >> cpu;
  int64_t ticks = 0;
  for (int i = 0; i <= kSteal && stat >> ticks; ++i) {
    reading.ticks += ticks;
    if (i == kSteal) reading.stolen = ticks;
  }
  return reading;
}

void CpuPressure::add(const CpuReading& before, const CpuReading& after) {
  ++calls_;
  throttled_ += after.throttled > before.throttled;
  stolen_ += after.stolen - before.stolen;
  ticks_ += after.ticks - before.ticks;
}

std::vector<std::string> CpuPressure::doubts() const {
  std::vector<std::string> doubts;
  if (throttled_ > 0) {
    doubts.push_back(
        fmt::format("a CPU quota (nr_throttled in the control group's cpu.stat) stopped processes "
                    "in {} of {} timed calls; raise it, or run without one",
                    throttled_, calls_));
  }
  if (stolen_ > kMostStolen * static_cast<double>(ticks_)) {
    doubts.push_back(fmt::format(
        "other virtual machines took {:.0f} % of the CPU time in timed calls (steal in /proc/stat, "
        "at most {:.0f} %); use a machine with CPUs of its own",
        100 * static_cast<double>(stolen_) / static_cast<double>(ticks_), 100 * kMostStolen));
  }
  return doubts;
}

}  // namespace mkbench
