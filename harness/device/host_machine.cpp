#include "harness/device/host_machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "references/base/free_memory.h"

namespace mkbench {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

nlohmann::json describe_cpu() {
  utsname system = {};
  uname(&system);
  return {{"name", cpu_name()},
          {"threads", std::thread::hardware_concurrency()},
          {"kernel", std::string(system.sysname) + " " + system.release},
          {"machine", system.machine}};
}

int64_t host_free_bytes() {
  const FreeMemory free = free_memory();
  return free.limit.empty() ? 0 : static_cast<int64_t>(free.bytes);
}

int64_t resident_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  int64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:") && (std::istringstream(line.substr(4)) >> kilobytes))
      return 1024 * kilobytes;
  }
  return 0;
}

}  // namespace mkbench
