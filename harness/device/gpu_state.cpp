#include "harness/device/gpu_state.h"

#include <dlfcn.h>
#include <nvml.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace mkbench {
namespace {

// One function of the library, or null where this driver does not have it.
template <typename Function>
struct Symbol {
  Function* call = nullptr;
  explicit operator bool() const { return call != nullptr; }
};

// The library with all functions that mkbench uses. Loaded once, never unloaded.
class Nvml {
 public:
  static const Nvml* get() {
    static const Nvml instance;
    return instance.ready_ ? &instance : nullptr;
  }

  Symbol<decltype(nvmlSystemGetDriverVersion)> driver_version;
  Symbol<decltype(nvmlSystemGetProcessName)> process_name;
  Symbol<decltype(nvmlDeviceGetHandleByPciBusId_v2)> by_pci;
  Symbol<decltype(nvmlDeviceGetClockInfo)> clock, max_clock;
  Symbol<nvmlReturn_t(nvmlDevice_t, nvmlClockType_t, unsigned int*)> application_clock,
      default_clock;
  Symbol<decltype(nvmlDeviceGetMemoryBusWidth)> bus_width;
  Symbol<decltype(nvmlDeviceGetTemperature)> temperature;
  Symbol<decltype(nvmlDeviceGetPowerUsage)> power, power_limit, default_power_limit;
  Symbol<decltype(nvmlDeviceGetComputeMode)> compute_mode;
  Symbol<decltype(nvmlDeviceGetCurrentClocksEventReasons)> throttle_reasons;
  Symbol<decltype(nvmlDeviceGetEccMode)> ecc;
  Symbol<decltype(nvmlDeviceGetMigMode)> mig;
  Symbol<decltype(nvmlDeviceGetMemoryInfo)> memory;
  Symbol<nvmlReturn_t(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*)> processes;

 private:
  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    Symbol<decltype(nvmlInit_v2)> init;
    bind(init, "nvmlInit_v2");
    if (!init || init.call() != NVML_SUCCESS) return;
    bind(driver_version, "nvmlSystemGetDriverVersion");
    bind(process_name, "nvmlSystemGetProcessName");
    bind(by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
    bind(clock, "nvmlDeviceGetClockInfo");
    bind(max_clock, "nvmlDeviceGetMaxClockInfo");
    bind(application_clock, "nvmlDeviceGetApplicationsClock");
    bind(default_clock, "nvmlDeviceGetDefaultApplicationsClock");
    bind(bus_width, "nvmlDeviceGetMemoryBusWidth");
    bind(temperature, "nvmlDeviceGetTemperature");
    bind(power, "nvmlDeviceGetPowerUsage");
    bind(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    bind(default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
    bind(compute_mode, "nvmlDeviceGetComputeMode");
    bind(throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    // Drivers before 535 have the function under its older name.
    if (!throttle_reasons) bind(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    bind(ecc, "nvmlDeviceGetEccMode");
    bind(mig, "nvmlDeviceGetMigMode");
    bind(memory, "nvmlDeviceGetMemoryInfo");
    bind(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    ready_ = true;
  }

  template <typename Function>
  void bind(Symbol<Function>& symbol, const char* name) {
    symbol.call = reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  bool ready_ = false;
};

// The value that one of NVML's getters writes, divided by `unit`; empty when the getter fails.
template <typename Out, typename Raw, typename Function, typename... Args>
std::optional<Out> ask(const Symbol<Function>& symbol, double unit, Args... args) {
  Raw raw{};
  if (!symbol || symbol.call(args..., &raw) != NVML_SUCCESS) return std::nullopt;
  return static_cast<Out>(static_cast<double>(raw) / unit);
}

std::vector<GpuProcess> read_processes(const Nvml& nvml, nvmlDevice_t device) {
  std::vector<GpuProcess> found;
  if (!nvml.processes) return found;
  unsigned int count = 0;
  if (nvml.processes.call(device, &count, nullptr) != NVML_ERROR_INSUFFICIENT_SIZE) return found;
  // Further processes may start between the two calls.
  constexpr unsigned int kSpare = 8;
  std::vector<nvmlProcessInfo_t> infos(count + kSpare);
  count = static_cast<unsigned int>(infos.size());
  if (nvml.processes.call(device, &count, infos.data()) != NVML_SUCCESS) return found;
  infos.resize(count);
  for (const nvmlProcessInfo_t& info : infos) {
    if (static_cast<int>(info.pid) == getpid()) continue;
    GpuProcess process;
    process.pid = static_cast<int>(info.pid);
    std::array<char, 256> name{};
    if (nvml.process_name &&
        nvml.process_name.call(info.pid, name.data(), name.size()) == NVML_SUCCESS) {
      process.name = name.data();
    }
    if (info.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE)) {
      process.bytes = static_cast<int64_t>(info.usedGpuMemory);
    }
    found.push_back(process);
  }
  return found;
}

struct ThrottleName {
  uint64_t bit;
  const char* name;
  bool slows;
};

constexpr ThrottleName kThrottleNames[] = {
    {nvmlClocksEventReasonGpuIdle, "idle", false},
    {nvmlClocksEventReasonApplicationsClocksSetting, "application clocks", false},
    {nvmlClocksEventReasonSwPowerCap, "power cap", true},
    {nvmlClocksThrottleReasonHwSlowdown, "hardware slowdown", true},
    {nvmlClocksEventReasonSyncBoost, "sync boost", true},
    {nvmlClocksEventReasonSwThermalSlowdown, "thermal (software)", true},
    {nvmlClocksThrottleReasonHwThermalSlowdown, "thermal (hardware)", true},
    {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake", true},
    {nvmlClocksEventReasonDisplayClockSetting, "display clocks", false},
};

const char* compute_mode_text(nvmlComputeMode_t mode) {
  if (mode == NVML_COMPUTEMODE_DEFAULT) return "default";
  return mode == NVML_COMPUTEMODE_PROHIBITED ? "prohibited" : "exclusive";
}

}  // namespace

std::string throttle_text(uint64_t reasons) {
  std::string text;
  for (const ThrottleName& t : kThrottleNames) {
    if ((reasons & t.bit) == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(t.name);
    reasons &= ~t.bit;
  }
  if (reasons != 0) {
    std::array<char, 32> hex{};
    std::snprintf(hex.data(), hex.size(), "0x%llx", static_cast<unsigned long long>(reasons));
    text += (text.empty() ? "" : ", ") + std::string(hex.data());
  }
  return text.empty() ? "none" : text;
}

bool is_throttled(uint64_t reasons) {
  for (const ThrottleName& t : kThrottleNames) {
    if (t.slows && (reasons & t.bit) != 0) return true;
  }
  return false;
}

std::string driver_version() {
  const Nvml* nvml = Nvml::get();
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  if (nvml == nullptr || !nvml->driver_version) return "";
  if (nvml->driver_version.call(text.data(), text.size()) != NVML_SUCCESS) return "";
  return text.data();
}

GpuState read_gpu_state(const std::string& pci_bus_id) {
  GpuState state;
  const Nvml* nvml = Nvml::get();
  nvmlDevice_t device{};
  if (nvml == nullptr || !nvml->by_pci) return state;
  if (nvml->by_pci.call(pci_bus_id.c_str(), &device) != NVML_SUCCESS) return state;

  state.sm_clock_mhz = ask<int, unsigned int>(nvml->clock, 1, device, NVML_CLOCK_SM);
  state.max_sm_clock_mhz = ask<int, unsigned int>(nvml->max_clock, 1, device, NVML_CLOCK_SM);
  state.memory_clock_mhz = ask<int, unsigned int>(nvml->clock, 1, device, NVML_CLOCK_MEM);
  state.max_memory_clock_mhz = ask<int, unsigned int>(nvml->max_clock, 1, device, NVML_CLOCK_MEM);
  state.memory_bus_bits = ask<int, unsigned int>(nvml->bus_width, 1, device);
  state.application_sm_clock_mhz =
      ask<int, unsigned int>(nvml->application_clock, 1, device, NVML_CLOCK_GRAPHICS);
  state.default_sm_clock_mhz =
      ask<int, unsigned int>(nvml->default_clock, 1, device, NVML_CLOCK_GRAPHICS);
  state.temperature_c = ask<int, unsigned int>(nvml->temperature, 1, device, NVML_TEMPERATURE_GPU);
  state.power_w = ask<double, unsigned int>(nvml->power, 1e3, device);
  state.power_limit_w = ask<double, unsigned int>(nvml->power_limit, 1e3, device);
  state.default_power_limit_w = ask<double, unsigned int>(nvml->default_power_limit, 1e3, device);
  nvmlComputeMode_t mode{};
  if (nvml->compute_mode && nvml->compute_mode.call(device, &mode) == NVML_SUCCESS) {
    state.compute_mode = compute_mode_text(mode);
  }
  state.throttle_reasons = ask<uint64_t, unsigned long long>(nvml->throttle_reasons, 1, device);
  if (state.throttle_reasons) state.throttle_text = throttle_text(*state.throttle_reasons);

  nvmlEnableState_t current{}, after_reboot{};
  if (nvml->ecc && nvml->ecc.call(device, &current, &after_reboot) == NVML_SUCCESS) {
    state.ecc = current == NVML_FEATURE_ENABLED;
  }
  unsigned int mig = 0, mig_pending = 0;
  if (nvml->mig && nvml->mig.call(device, &mig, &mig_pending) == NVML_SUCCESS) {
    state.mig = mig == NVML_DEVICE_MIG_ENABLE;
  }
  nvmlMemory_t memory{};
  if (nvml->memory && nvml->memory.call(device, &memory) == NVML_SUCCESS) {
    state.free_bytes = static_cast<int64_t>(memory.free);
  }
  state.processes = read_processes(*nvml, device);
  return state;
}

}  // namespace mkbench
