// The driver's management library (NVML), loaded at run time: a machine without a driver lacks it.
#pragma once

#include <nvml.h>

#include <optional>

namespace mkbench {

// One function of the library; null if this driver does not have it.
template <typename Function>
struct Symbol {
  Function* call = nullptr;
  explicit operator bool() const { return call != nullptr; }
};

// The library with all functions that mkbench uses. Loaded once, never unloaded.
class Nvml {
 public:
  // Null if there is no driver.
  static const Nvml* get();

  Symbol<decltype(nvmlSystemGetDriverVersion)> driver_version;
  Symbol<decltype(nvmlSystemGetProcessName)> process_name;
  Symbol<decltype(nvmlDeviceGetHandleByPciBusId_v2)> by_pci;
  Symbol<decltype(nvmlDeviceGetClockInfo)> clock, max_clock;
  Symbol<nvmlReturn_t(nvmlDevice_t, nvmlClockType_t, unsigned int*)> application_clock,
      default_clock;
  Symbol<decltype(nvmlDeviceGetMemoryBusWidth)> bus_width;
  Symbol<decltype(nvmlDeviceGetTemperature)> temperature;
  Symbol<decltype(nvmlDeviceGetTotalEnergyConsumption)> energy;
  Symbol<decltype(nvmlDeviceGetPowerUsage)> power, power_limit, default_power_limit;
  Symbol<decltype(nvmlDeviceGetUtilizationRates)> use;
  Symbol<decltype(nvmlDeviceGetComputeMode)> compute_mode;
  Symbol<decltype(nvmlDeviceGetCurrentClocksEventReasons)> throttle_reasons;
  Symbol<decltype(nvmlDeviceGetEccMode)> ecc;
  Symbol<decltype(nvmlDeviceGetMigMode)> mig;
  Symbol<decltype(nvmlDeviceGetMemoryInfo)> memory;
  Symbol<nvmlReturn_t(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*)> processes;

 private:
  Nvml();

  template <typename Function>
  void bind(Symbol<Function>& symbol, const char* name);

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

}  // namespace mkbench
