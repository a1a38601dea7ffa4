#include "harness/device/gpu_state.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "harness/device/nvml.h"

namespace mkbench {
namespace {

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

double memory_clock_share(const GpuState& state) {
  if (!state.memory_clock_mhz || state.max_memory_clock_mhz.value_or(0) <= 0) return 1;
  return static_cast<double>(*state.memory_clock_mhz) / *state.max_memory_clock_mhz;
}

void read_busy_memory_clock(const std::string& pci_bus_id, GpuState& state,
                            const std::function<void()>& work) {
  constexpr int kMostCalls = 100;
  for (int calls = 0;; ++calls) {
    state.memory_clock_mhz = read_gpu_state(pci_bus_id).memory_clock_mhz;
    if (memory_clock_share(state) >= kFullMemoryClock || calls == kMostCalls) return;
    work();
  }
}

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

uint64_t throttling_bits(uint64_t reasons) {
  uint64_t bits = 0;
  for (const ThrottleName& t : kThrottleNames) {
    if (t.slows) bits |= reasons & t.bit;
  }
  return bits;
}

bool is_throttled(uint64_t reasons) { return throttling_bits(reasons) != 0; }

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
