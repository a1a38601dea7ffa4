// What the card did while a timed part ran, and whether that lets the part count.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "references/base/fields.h"

namespace mkbench {

// Readings of the driver during one timed part, summed up. A value that the card does not offer is
// empty. No reading comes from the engine, which could otherwise get its slow blocks dropped.
struct Telemetry {
  int readings = 0;
  std::optional<double> sm_clock_mhz, sm_clock_min_mhz, memory_clock_mhz;  // mean, lowest, mean
  std::optional<double> power_w;                                           // mean
  std::optional<double> temperature_c;                                     // highest
  std::string limits;     // all that limited the clocks, "power cap, thermal (software)"; or empty
  std::string throttled;  // the reasons among `limits` that slow the card down
  // Energy and time between the first and the last change of the card's energy counter in the part;
  // 0 if it did not change twice.
  double energy_j = 0, energy_ms = 0;
  std::optional<bool> counts_energy;  // whether the card has such a counter
};

constexpr std::string_view struct_name(Tag<Telemetry>) { return "telemetry"; }
template <typename V>
void describe_fields(V& v, Tag<Telemetry>) {
  using T = Telemetry;
  v.field("readings", &T::readings, "readings of the driver (NVML) while the clock ran");
  v.field("sm_clock_mhz", &T::sm_clock_mhz, "SM clock, mean");
  v.field("sm_clock_min_mhz", &T::sm_clock_min_mhz, "SM clock, lowest");
  v.field("memory_clock_mhz", &T::memory_clock_mhz, "memory clock, mean");
  v.field("power_w", &T::power_w, "power draw, mean");
  v.field("temperature_c", &T::temperature_c, "temperature of the GPU, highest");
  v.field("limits", &T::limits, "all that limited the clocks; empty: nothing");
  v.field("throttled", &T::throttled,
          "the part of limits that drops the measurement block; idling and user-set clocks do not");
  v.field("energy_j", &T::energy_j,
          "joules between the first and the last change of the card's energy counter");
  v.field("energy_ms", &T::energy_ms, "milliseconds that energy_j covers");
  v.field("counts_energy", &T::counts_energy, "whether the card has an energy counter");
}

// A sample whose SM clock is below this share of its engine's median drops its measurement block.
inline constexpr double kSlowClock = 0.97;
inline constexpr char kSlowClockReason[] = "slow clock";

// Median SM clock of timed parts (samples) of one engine; empty if none has a clock.
std::optional<double> median_sm_clock(std::span<const Telemetry* const> parts);

// Why a timed part does not count: its throttle reasons, or kSlowClockReason; empty if it counts.
std::string condition_doubt(const Telemetry& part, std::optional<double> median_sm_clock_mhz);

}  // namespace mkbench
