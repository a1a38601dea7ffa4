// A libnvidia-ml without a GPU: one card, whose values the test sets.
#include "tests/support/fake_nvml.h"

#include <nvml.h>

#include <cstring>

namespace {

FakeNvml state;

nvmlReturn_t tell(const std::optional<unsigned>& value, unsigned* out) {
  if (!state.answers) return NVML_ERROR_GPU_IS_LOST;
  if (!value) return NVML_ERROR_NOT_SUPPORTED;
  *out = *value;
  return NVML_SUCCESS;
}

}  // namespace

FakeNvml& fake_nvml() { return state; }

extern "C" {

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus, nvmlDevice_t* device) {
  static int card;
  if (std::strcmp(bus, kFakeCard) != 0) return NVML_ERROR_NOT_FOUND;
  *device = reinterpret_cast<nvmlDevice_t>(&card);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* mhz) {
  if (type != NVML_CLOCK_SM) return tell(state.memory_clock_mhz, mhz);
  ++state.readings;
  state.stands_still.wait(true);
  return tell(state.sm_clock_mhz, mhz);
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* mhz) {
  return tell(type == NVML_CLOCK_SM ? 1980 : state.max_memory_clock_mhz, mhz);
}
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned* mhz) {
  return tell(state.application_clock_mhz, mhz);
}
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t, nvmlClockType_t, unsigned* mhz) {
  return tell(state.default_clock_mhz, mhz);
}
nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t, unsigned* bits) {
  return tell(state.bus_bits, bits);
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned* c) {
  return tell(54, c);
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t* use) {
  return tell(state.use_percent, &use->gpu);
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned* milliwatts) {
  return tell(412'000, milliwatts);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t, unsigned long long* reasons) {
  if (!state.answers) return NVML_ERROR_GPU_IS_LOST;
  *reasons = state.reasons;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t, unsigned long long* millijoules) {
  if (!state.answers) return NVML_ERROR_GPU_IS_LOST;
  if (!state.counts_energy) return NVML_ERROR_NOT_SUPPORTED;
  *millijoules = state.millijoules;
  state.millijoules += state.millijoules_a_reading;
  return NVML_SUCCESS;
}
}
