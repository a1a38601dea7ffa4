// The state of a card as the driver's management library (NVML) reports it. NVML is loaded at run
// time, because a machine without a driver does not have it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

// Another process that holds memory on the card.
struct GpuProcess {
  int pid = 0;  // as the driver reports it: in a container maybe the host's number
  std::string name;
  std::optional<int64_t> bytes;
};
template <typename V>
void describe_fields(V& v, Tag<GpuProcess>) {
  using P = GpuProcess;
  list_fields(v, "pid", &P::pid, "name", &P::name, "bytes", &P::bytes);
}

// One reading. A value that the card or the driver does not offer is empty. Reading it creates no
// CUDA context.
struct GpuState {
  std::optional<int> sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz, max_memory_clock_mhz;
  std::optional<int> memory_bus_bits;
  // The SM clock set for applications, and its default.
  std::optional<int> application_sm_clock_mhz, default_sm_clock_mhz;
  std::optional<int> temperature_c;
  std::optional<double> power_w, power_limit_w, default_power_limit_w;
  std::string compute_mode;  // "default", "exclusive", "prohibited"; empty if unknown
  std::optional<uint64_t> throttle_reasons;  // NVML's bits
  std::string throttle_text;                 // "none", or names joined by ", "
  std::optional<bool> ecc, mig;
  std::optional<int64_t> free_bytes;
  // Other processes that compute on the card. In a container this process may be listed too,
  // because the driver may report it under the host's pid.
  std::vector<GpuProcess> processes;
};
template <typename V>
void describe_fields(V& v, Tag<GpuState>) {
  using S = GpuState;
  list_fields(v, "sm_clock_mhz", &S::sm_clock_mhz, "max_sm_clock_mhz", &S::max_sm_clock_mhz,
              "memory_clock_mhz", &S::memory_clock_mhz, "max_memory_clock_mhz",
              &S::max_memory_clock_mhz, "memory_bus_bits", &S::memory_bus_bits,
              "application_sm_clock_mhz", &S::application_sm_clock_mhz, "default_sm_clock_mhz",
              &S::default_sm_clock_mhz, "temperature_c", &S::temperature_c, "power_w", &S::power_w,
              "power_limit_w", &S::power_limit_w, "default_power_limit_w",
              &S::default_power_limit_w, "compute_mode", &S::compute_mode, "throttle_reasons",
              &S::throttle_reasons, "throttle_text", &S::throttle_text, "ecc", &S::ecc, "mig",
              &S::mig, "free_bytes", &S::free_bytes, "processes", &S::processes);
}

// pci_bus_id: as cudaDeviceGetPCIBusId() writes it. Without NVML all fields are empty.
GpuState read_gpu_state(const std::string& pci_bus_id);

// The memory clock as a share of the card's highest; 1 where one of them is unknown.
double memory_clock_share(const GpuState& state);
// A card that computes has this share at least, unless something holds its clock back: an RTX 5090 is
// reported to run at 98.6 % under CUDA.
inline constexpr double kFullMemoryClock = 0.95;
// Reads the memory clock again while `work` keeps the card busy, since a card that rests lowers it:
// until it is full, or after a hundred calls of `work`.
void read_busy_memory_clock(const std::string& pci_bus_id, GpuState& state,
                            const std::function<void()>& work);

// Names of NVML's clock-limiting bits, joined by ", "; "none" for 0. Unknown bits are shown as hex.
std::string throttle_text(uint64_t reasons);
// The bits which say that the card runs slower than it could; idling and clocks set by the user do
// not count.
uint64_t throttling_bits(uint64_t reasons);
bool is_throttled(uint64_t reasons);

// "580.65.06", empty without a driver.
std::string driver_version();

}  // namespace mkbench
