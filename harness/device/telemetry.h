// Readings of a card while a timed part runs, and their summary. Reading creates no CUDA context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "harness/measure/telemetry.h"

namespace mkbench {

// One reading. A value that the card or the driver does not offer is empty.
struct CardReading {
  double at_ms = 0;  // CLOCK_MONOTONIC, when the energy counter was read
  std::optional<double> sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
  std::optional<uint64_t> limits;  // NVML's bits
  std::optional<double> energy_j;  // the card's counter, which has run since the driver was loaded
};

// Reads one card; returns nullopt if the driver does not answer.
using ReadCard = std::function<std::optional<CardReading>()>;

// A reader of the card. pci_bus_id: as cudaDeviceGetPCIBusId() writes it. Null without NVML.
ReadCard card_reader(const std::string& pci_bus_id);

// Tells whether a kernel has run on the card during all of the driver's last sample period, up to a
// second. Null without NVML.
std::function<bool()> use_reader(const std::string& pci_bus_id);

// Sums up the readings of one part, given in the order in which they were taken; nullopt without
// readings. If the energy counter went back (the driver was loaded anew, or the counter wrapped),
// the part has no energy.
std::optional<Telemetry> fold_readings(std::span<const CardReading> readings);

}  // namespace mkbench
