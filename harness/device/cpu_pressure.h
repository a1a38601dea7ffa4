// What keeps CPU time from the processes of this container or machine: a quota, or the hypervisor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mkbench {

// Counts since the start of the machine or the container.
struct CpuReading {
  // Periods of a control group's quota in which it stopped processes, over all groups above this
  // process.
  int64_t throttled = 0;
  // Time of all CPUs together, in clock ticks: what a hypervisor gave to other machines, and the sum
  // of all uses.
  int64_t stolen = 0, ticks = 0;
};

// All files are read below `root`; what is not there counts as 0.
CpuReading read_cpu(const std::filesystem::path& root = "/");

// What the CPUs did during many calls.
class CpuPressure {
 public:
  void add(const CpuReading& before, const CpuReading& after);
  // Why the times of these calls are doubtful, a clause each; empty if they are not.
  std::vector<std::string> doubts() const;

 private:
  int calls_ = 0, throttled_ = 0;  // throttled_: calls in which a quota stopped a process
  int64_t stolen_ = 0, ticks_ = 0;
};

}  // namespace mkbench
