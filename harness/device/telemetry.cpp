#include "harness/device/telemetry.h"

#include <algorithm>
#include <chrono>

#include "harness/device/gpu_state.h"
#include "harness/device/nvml.h"

namespace mkbench {
namespace {

// The mean of a value over the readings that have it.
std::optional<double> mean_of(std::span<const CardReading> readings,
                              std::optional<double> CardReading::*value) {
  double sum = 0;
  int count = 0;
  for (const CardReading& reading : readings) {
    if (!(reading.*value)) continue;
    sum += *(reading.*value);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

template <typename Better>
std::optional<double> extreme_of(std::span<const CardReading> readings,
                                 std::optional<double> CardReading::*value, const Better& better) {
  std::optional<double> found;
  for (const CardReading& reading : readings) {
    const std::optional<double>& one = reading.*value;
    if (one && (!found || better(*one, *found))) found = one;
  }
  return found;
}

// The card updates its energy counter at its own intervals, so the first update in a part includes
// energy from before the part. Only the energy between the first and the last update counts.
void fold_energy(std::span<const CardReading> readings, Telemetry& sum) {
  const CardReading* last = nullptr;
  const CardReading* first_change = nullptr;
  const CardReading* last_change = nullptr;
  for (const CardReading& reading : readings) {
    if (!reading.energy_j) continue;
    if (last != nullptr && *reading.energy_j < *last->energy_j) return;
    if (last != nullptr && *reading.energy_j > *last->energy_j) {
      last_change = &reading;
      if (first_change == nullptr) first_change = &reading;
    }
    last = &reading;
  }
  if (first_change == last_change) return;
  sum.energy_j = *last_change->energy_j - *first_change->energy_j;
  sum.energy_ms = last_change->at_ms - first_change->at_ms;
}

// The card, where NVML knows it.
std::optional<nvmlDevice_t> find_card(const Nvml* nvml, const std::string& pci_bus_id) {
  nvmlDevice_t device{};
  if (nvml == nullptr || !nvml->by_pci) return std::nullopt;
  if (nvml->by_pci.call(pci_bus_id.c_str(), &device) != NVML_SUCCESS) return std::nullopt;
  return device;
}

}  // namespace

std::function<bool()> use_reader(const std::string& pci_bus_id) {
  const Nvml* nvml = Nvml::get();
  const std::optional<nvmlDevice_t> device = find_card(nvml, pci_bus_id);
  if (!device || !nvml->use) return {};
  return [nvml, device = *device] {
    nvmlUtilization_t percent{};
    return nvml->use.call(device, &percent) == NVML_SUCCESS && percent.gpu >= 99;
  };
}

ReadCard card_reader(const std::string& pci_bus_id) {
  const Nvml* nvml = Nvml::get();
  const std::optional<nvmlDevice_t> found = find_card(nvml, pci_bus_id);
  if (!found) return {};
  return [nvml, device = *found]() -> std::optional<CardReading> {
    using Clock = std::chrono::steady_clock;
    CardReading r;
    r.sm_clock_mhz = ask<double, unsigned int>(nvml->clock, 1, device, NVML_CLOCK_SM);
    r.limits = ask<uint64_t, unsigned long long>(nvml->throttle_reasons, 1, device);
    r.memory_clock_mhz = ask<double, unsigned int>(nvml->clock, 1, device, NVML_CLOCK_MEM);
    r.energy_j = ask<double, unsigned long long>(nvml->energy, 1e3, device);
    r.at_ms = std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
    r.power_w = ask<double, unsigned int>(nvml->power, 1e3, device);
    r.temperature_c = ask<double, unsigned int>(nvml->temperature, 1, device, NVML_TEMPERATURE_GPU);
    if (!r.sm_clock_mhz && !r.limits && !r.energy_j && !r.power_w) return std::nullopt;
    return r;
  };
}

std::optional<Telemetry> fold_readings(std::span<const CardReading> readings) {
  if (readings.empty()) return std::nullopt;
  Telemetry sum;
  sum.readings = static_cast<int>(readings.size());
  sum.sm_clock_mhz = mean_of(readings, &CardReading::sm_clock_mhz);
  sum.sm_clock_min_mhz = extreme_of(readings, &CardReading::sm_clock_mhz, std::less<>());
  sum.memory_clock_mhz = mean_of(readings, &CardReading::memory_clock_mhz);
  sum.power_w = mean_of(readings, &CardReading::power_w);
  sum.temperature_c = extreme_of(readings, &CardReading::temperature_c, std::greater<>());
  uint64_t limits = 0;
  for (const CardReading& reading : readings) {
    limits |= reading.limits.value_or(0);
    if (reading.energy_j || !sum.counts_energy) sum.counts_energy = reading.energy_j.has_value();
  }
  if (limits != 0) sum.limits = throttle_text(limits);
  if (is_throttled(limits)) sum.throttled = throttle_text(throttling_bits(limits));
  fold_energy(readings, sum);
  return sum;
}

}  // namespace mkbench
