// `mkbench doctor --require gpu=5090,vram=32,..`: whether a rented machine is what was asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/doctor_items.h"
#include "harness/device/host_machine.h"

namespace mkbench {

struct Requirement {
  std::string key;     // one of kRequirementKeys
  std::string wanted;  // part of the card's name, or a number
  double number = 0;   // of `wanted`, for every key but gpu
};

inline constexpr std::string_view kRequirementKeys[] = {"gpu", "vram", "ram", "cores", "disk"};

// One row a requirement, with what was found and wanted; a problem where it is not met. `gpu`: the
// card that is looked at. vram, ram and disk are in GB of 10^9 bytes, as offers state them, and met
// from half a GB below on; vram and ram are totals, disk is what is free.
std::vector<DoctorItem> judge_requirements(const std::vector<Requirement>& wanted,
                                           const DeviceList& devices, int gpu,
                                           const HostMachine& machine);

}  // namespace mkbench
