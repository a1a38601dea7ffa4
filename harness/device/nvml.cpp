#include "harness/device/nvml.h"

#include <dlfcn.h>

namespace mkbench {

const Nvml* Nvml::get() {
  static const Nvml instance;
  return instance.ready_ ? &instance : nullptr;
}

template <typename Function>
void Nvml::bind(Symbol<Function>& symbol, const char* name) {
  symbol.call = reinterpret_cast<Function*>(dlsym(library_, name));
}

Nvml::Nvml() {
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
  bind(energy, "nvmlDeviceGetTotalEnergyConsumption");
  bind(power, "nvmlDeviceGetPowerUsage");
  bind(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  bind(default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
  bind(use, "nvmlDeviceGetUtilizationRates");
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

}  // namespace mkbench
