// Facts of machines that are not there, for what judges machines.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/device/doctor.h"

namespace mkbench::testing {

inline constexpr const char* kAll = "80;86;89;90a;100a;120a";

inline DeviceInfo device(int index, const char* name, int major, int minor) {
  DeviceInfo d;
  d.index = index;
  d.name = name;
  d.sm_major = major;
  d.sm_minor = minor;
  d.sm_count = 132;
  d.l2_bytes = 50 << 20;
  d.total_bytes = int64_t{80} << 30;
  d.free_bytes = int64_t{79} << 30;
  return d;
}

inline DeviceList machine(std::vector<DeviceInfo> devices) {
  DeviceList list;
  list.driver_cuda_version = 13000;
  list.runtime_cuda_version = 13000;
  list.driver_version = "580.65.06";
  list.devices = std::move(devices);
  return list;
}

inline DoctorInputs inputs() {
  DoctorInputs in;
  in.our_architectures = kAll;
  in.torch_version = "2.11.0";
  in.torch_cuda_version = "13.0";
  in.torch_architectures = "sm_80 sm_90 sm_100 sm_120";
  in.torch_cuda_available = true;
  in.model = "synthetic";
  in.ring_pace = "a sweep";
  in.device_bytes_needed = int64_t{4} << 30;
  in.host_bytes_needed = int64_t{2} << 30;
  return in;
}

inline HostMachine fake_host() {
  HostMachine host;
  host.cores = 16;
  host.memory_total = int64_t{66} << 30;
  host.memory_free = int64_t{64} << 30;
  host.disk_folder = "/somewhere";
  host.disk_total = int64_t{200} << 30;
  host.disk_free = int64_t{100} << 30;
  host.shared_total = int64_t{1} << 30;
  return host;
}

// A report with everything that judge_machine() reads filled in.
inline DoctorReport healthy() {
  DoctorReport report;
  report.devices = machine({device(0, "NVIDIA H100", 9, 0)});
  report.toolkit = {"/opt/cuda/bin/nvcc", "13.0"};
  report.machine = fake_host();
  report.torch_check = {.ok = true, .got = 7, .wanted = 7, .blocks = 0, .error = ""};
  report.check = {.ok = true, .got = 5, .wanted = 5, .blocks = 132, .error = ""};
  report.checked = true;
  return report;
}

inline const DoctorItem* find_item(const DoctorReport& report, const std::string& topic,
                                   Finding finding) {
  for (const DoctorItem& item : report.items) {
    if (item.topic == topic && item.finding == finding) return &item;
  }
  return nullptr;
}

inline const DoctorItem* find_row(const std::vector<DoctorItem>& rows, const std::string& topic) {
  for (const DoctorItem& item : rows) {
    if (item.topic == topic) return &item;
  }
  return nullptr;
}

// A card of the kind that is rented: RTX 5090, 32 GB as sold.
inline DoctorReport rented(int driver_cuda, const char* driver) {
  DoctorReport report = healthy();
  DeviceInfo card = device(0, "NVIDIA GeForce RTX 5090", 12, 0);
  card.total_bytes = 33'661'911'040;
  card.state.compute_mode = "default";
  card.state.power_limit_w = card.state.default_power_limit_w = 575;
  report.devices = machine({card});
  report.devices.driver_cuda_version = driver_cuda;
  report.devices.driver_version = driver;
  return report;
}

}  // namespace mkbench::testing
