// What a test sets of tests/device/fake_nvml.cpp, which takes the place of the driver's libnvidia-ml.
#pragma once

#include <atomic>
#include <optional>

// A card at kFakeCard. A value that is empty is not supported by it.
struct FakeNvml {
  std::atomic<int> readings = 0;  // of the SM clock
  std::atomic<unsigned> sm_clock_mhz = 1980;
  unsigned memory_clock_mhz = 2619, max_memory_clock_mhz = 2619;
  std::atomic<unsigned long long> reasons = 0;
  std::atomic<bool> answers = true;  // false: every getter fails
  std::optional<unsigned> application_clock_mhz = 1980, default_clock_mhz = 1980;
  std::optional<unsigned> bus_bits = 5120;
  std::optional<unsigned> use_percent = 100;
  bool counts_energy = true;
  std::atomic<unsigned long long> millijoules = 1'000'000;
  std::atomic<unsigned long long> millijoules_a_reading = 0;
  std::atomic<bool> stands_still = false;  // in a reading of the SM clock
};

inline constexpr char kFakeCard[] = "00000000:17:00.0";

FakeNvml& fake_nvml();
