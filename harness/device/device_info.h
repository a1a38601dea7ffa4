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
  double pin_gb_per_s = 0;  // pin_rate(); 0 where the driver does not say
  int64_t total_bytes = 0, free_bytes = 0;
  bool exclusive = false;  // one process at a time may use the card (compute mode)
  GpuState state;
};

// CUDA versions are the toolkit's integers: 13000 is 13.0.
struct DeviceList {
  int driver_cuda_version = 0;   // newest CUDA that the driver supports; 0 = no driver
  int runtime_cuda_version = 0;  // of the runtime library that is linked
  std::string driver_version;    // "580.65.06"; empty where the driver does not say
  std::string error;             // message of the CUDA runtime when it finds no device
  std::vector<DeviceInfo> devices;
};

// Asks CUDA, so only a host calls it. A CUDA context is created only where NVML is missing. Never
// throws: a defect is a field of the list, which judge_device() explains.
DeviceList list_devices();

// The GPU with that index; null without it.
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

// Code for sm_XY runs on its major version from minor version Y on (suffix `f` means this family
// too); with suffix `a` it runs on X.Y alone. compute_XY is PTX, which runs on every later device.
bool architecture_runs_on(std::string_view architecture, int sm_major, int sm_minor);
// Splits a list of architectures: "90a-real;120a" -> {"90a-real", "120a"}.
std::vector<std::string> split_architectures(std::string_view list);

// Peak rate of the pins of a memory that moves two words a clock, in 1e9 bytes a second: 2 x clock
// x width. 0 if one of them is not known.
double pin_rate(int memory_clock_khz, int bus_width_bits);

// 13000 -> "13.0".
std::string cuda_version_text(int version);
// The `env.gpu` part of reports.
nlohmann::json to_json(const DeviceInfo& device);

}  // namespace mkbench
