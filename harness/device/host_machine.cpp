#include "harness/device/host_machine.h"

#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

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

double host_read_bytes_per_second() {
  constexpr size_t kWords = size_t{16} << 20;  // 128 MB a thread: more than any cache
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::vector<uint64_t>> buffers(threads);
  std::vector<uint64_t> sums(threads);
  const auto on_all = [&](const auto& work) {
    std::vector<std::thread> team;
    for (unsigned t = 0; t < threads; ++t) team.emplace_back([&, t] { work(t); });
    for (std::thread& member : team) member.join();
  };
  on_all([&](unsigned t) { buffers[t].assign(kWords, t + 1); });
  const auto begin = std::chrono::steady_clock::now();
  on_all([&](unsigned t) {
    sums[t] = std::accumulate(buffers[t].begin(), buffers[t].end(), uint64_t{0});
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  // Reading the sums keeps the reads above from being dropped.
  const uint64_t sum = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  return sum == 0 ? 0 : static_cast<double>(kWords * sizeof(uint64_t) * threads) / seconds.count();
}

}  // namespace mkbench
