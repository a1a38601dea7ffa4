#include "harness/host/machine.h"

#include <sys/utsname.h>

#include <chrono>
#include <fstream>
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
Json ring_obstacles(int gpu, const std::vector<std::string>& models) {
  Json result = Json::object();
  for (const std::string& model : models) {
    try {
      result[model] = ring_obstacle(model_config(model), gpu);
    } catch (const std::exception& error) {
      result[model] = error.what();
    }
  }
  return result;
}

}  // namespace

Json probe_machine(int gpu, const std::vector<std::string>& models) {
  const DeviceList list = list_devices();
  const std::string architectures = plain_architectures();
  const Usability usability = judge_device(list, gpu, architectures);
  const TorchFacts torch = torch_facts();
  Json result = {{"type", "probe"},
                 {"usable", usability.usable() && torch.cuda_available},
                 {"reason", usability.reason},
                 {"what_to_do", usability.what_to_do},
                 {"devices", Json::array()}};
  if (usability.usable() && !torch.cuda_available) {
    result["reason"] = "libtorch " + torch.version + " cannot use the GPU (built for CUDA " +
                       (torch.cuda_version.empty() ? "none" : torch.cuda_version) + ")";
    result["what_to_do"] = "install a torch wheel that fits the driver";
  }
  if (result["usable"]) result["ring_obstacles"] = ring_obstacles(gpu, models);
  for (const DeviceInfo& device : list.devices) result["devices"].push_back(to_json(device));
  Json environment = {{"cpu", describe_cpu()},
                      {"libtorch",
                       {{"version", torch.version},
                        {"cuda", torch.cuda_version},
                        {"architectures", torch.architectures}}},
                      {"architectures", architectures},
                      {"eager_settings", eager_settings()}};
  if (gpu < static_cast<int>(list.devices.size())) {
    const DeviceInfo& device = list.devices[static_cast<size_t>(gpu)];
    Json card = to_json(device);
    card["driver"] = list.driver_version;
    card["driver_cuda"] = cuda_version_text(list.driver_cuda_version);
    card["cuda_runtime"] = cuda_version_text(list.runtime_cuda_version);
    environment["gpu"] = std::move(card);
    result["l2_bytes"] = device.l2_bytes;
    result["other_processes"] = device.state.processes.size();
    result["device"] = "cuda:" + std::to_string(gpu) + " " + device.name;
  }
  result["environment"] = std::move(environment);
  return result;
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
