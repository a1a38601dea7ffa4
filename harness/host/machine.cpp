#include "harness/host/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "baselines/eager.h"
#include "harness/device/device_info.h"
#include "harness/host/services.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Json describe_cpu() {
  utsname system = {};
  uname(&system);
  return {{"name", cpu_name()},
          {"threads", std::thread::hardware_concurrency()},
          {"kernel", std::string(system.sysname) + " " + system.release},
          {"machine", system.machine}};
}

// Why ring cannot run each model; empty where it can. A model that does not exist is refused later,
// with all that is wrong about it.
std::map<std::string, std::string> ring_obstacles(const ProbeJob& job) {
  std::map<std::string, std::string> result;
  for (const std::string& model : job.models) {
    try {
      result[model] = ring_obstacle(model_config(model), job.gpu);
    } catch (const std::exception& error) {
      result[model] = error.what();
    }
  }
  return result;
}

// Whether GPU `job.gpu` can be used by the kernels and by libtorch.
void judge_usability(const ProbeJob& job, const DeviceList& list, const TorchFacts& torch,
                     ProbeAnswer& answer) {
  const Usability usability = judge_device(list, job.gpu, plain_architectures());
  answer.usable = usability.usable() && torch.cuda_available;
  answer.reason = usability.reason;
  answer.what_to_do = usability.what_to_do;
  if (usability.usable() && !torch.cuda_available) {
    answer.reason = "libtorch " + torch.version + " cannot use the GPU (built for CUDA " +
                    (torch.cuda_version.empty() ? "none" : torch.cuda_version) + ")";
    answer.what_to_do = "install a torch wheel that fits the driver";
  }
  if (answer.usable) answer.ring_obstacles = ring_obstacles(job);
}

}  // namespace

ProbeAnswer probe_machine(const ProbeJob& job) {
  const DeviceList list = list_devices();
  const TorchFacts torch = torch_facts();
  ProbeAnswer answer;
  judge_usability(job, list, torch, answer);
  for (const DeviceInfo& device : list.devices) {
    answer.devices.push_back({.index = device.index,
                              .name = device.name,
                              .sm = fmt::format("{}.{}", device.sm_major, device.sm_minor),
                              .free_bytes = device.free_bytes,
                              .total_bytes = device.total_bytes});
  }
  answer.environment = {{"cpu", describe_cpu()},
                        {"libtorch",
                         {{"version", torch.version},
                          {"cuda", torch.cuda_version},
                          {"architectures", torch.architectures}}},
                        {"architectures", plain_architectures()},
                        {"eager_settings", eager_settings()}};
  if (job.gpu < static_cast<int>(list.devices.size())) {
    const DeviceInfo& device = list.devices[static_cast<size_t>(job.gpu)];
    Json card = to_json(device);
    card["driver"] = list.driver_version;
    card["driver_cuda"] = cuda_version_text(list.driver_cuda_version);
    card["cuda_runtime"] = cuda_version_text(list.runtime_cuda_version);
    answer.environment["gpu"] = std::move(card);
    answer.l2_bytes = device.l2_bytes;
    answer.other_processes = static_cast<int>(device.state.processes.size());
    answer.device = fmt::format("cuda:{} {}", job.gpu, device.name);
  }
  return answer;
}

int64_t host_free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    int64_t kib = 0;
    std::istringstream(line.substr(13)) >> kib;
    return kib * 1024;
  }
  return 0;
}

int64_t device_free_bytes(int gpu) {
  const DeviceList list = list_devices();
  return gpu < static_cast<int>(list.devices.size())
             ? list.devices[static_cast<size_t>(gpu)].free_bytes
             : 0;
}

std::string device_bus_id(int gpu) {
  const DeviceList list = list_devices();
  return gpu < static_cast<int>(list.devices.size())
             ? list.devices[static_cast<size_t>(gpu)].pci_bus_id
             : "";
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
