// The GPUs of this machine, and whether this binary can use one of them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/gpu_state.h"

namespace mkbench {

struct DeviceInfo {
  int index = 0;
  std::string name, uuid, pci_bus_id;
  int sm_major = 0, sm_minor = 0;  // compute capability
  int sm_count = 0;
  int64_t l2_bytes = 0;
  double pin_gb_per_s = 0;  // pin_rate(); 0 if the driver does not report it
  int64_t total_bytes = 0, free_bytes = 0;
  bool exclusive = false;  // one process at a time may use the card (compute mode)
  GpuState state;
};

// CUDA versions are the toolkit's integers: 13000 is 13.0.
struct DeviceList {
  int driver_cuda_version = 0;   // newest CUDA that the driver supports; 0 = no driver
  int runtime_cuda_version = 0;  // of the linked CUDA runtime library
  std::string driver_version;    // "580.65.06"; empty if unknown
  std::string error;             // the CUDA runtime's message if it finds no device
  std::vector<DeviceInfo> devices;
};

// Asks CUDA, so only a host calls it. Creates a CUDA context only for a MIG slice or without NVML.
// Never throws: faults are fields of the list, and judge_device() explains them.
DeviceList list_devices();

// The GPU with that index; null if the list has none.
const DeviceInfo* find_device(const DeviceList& list, int index);

enum class Unfit {
  kNone,
  kNoDriver,
  kDriverTooOld,
  kRuntimeTooOld,
  kNoDevice,
  kNoSuchIndex,
  kNoCode
};

struct Usability {
  Unfit unfit = Unfit::kNone;
  std::string reason;      // one sentence; empty when usable
  std::string what_to_do;  // one sentence; empty when usable
  bool usable() const { return unfit == Unfit::kNone; }
};

// Whether GPU `index` can run code for `architectures` ("80;86;90a", "sm_80 sm_90"; separators are
// semicolon, comma and space).
Usability judge_device(const DeviceList& list, int index, std::string_view architectures);

// Code for sm_XY, also with suffix `f`, runs on devices X.Z with Z >= Y; with suffix `a` on X.Y
// alone. compute_XY is PTX, which without a suffix also runs on every later major version.
bool architecture_runs_on(std::string_view architecture, int sm_major, int sm_minor);
// Splits a list of architectures: "90a-real;120a" -> {"90a-real", "120a"}.
std::vector<std::string> split_architectures(std::string_view list);

// Peak rate of a double-data-rate memory's pins in 1e9 bytes a second: 2 x clock x bus width. 0 if
// clock or width is unknown (not positive).
double pin_rate(int memory_clock_khz, int bus_width_bits);

// 13000 -> "13.0".
std::string cuda_version_text(int version);
// The `env.gpu` part of reports.
nlohmann::json to_json(const DeviceInfo& device);

}  // namespace mkbench
