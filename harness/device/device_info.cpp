#include "harness/device/device_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "harness/device/cuda_lanes.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

Usability unfit(Unfit what, std::string reason, std::string what_to_do) {
  return {what, std::move(reason), std::move(what_to_do)};
}

// Judges driver and CUDA runtime, which are the same for every card.
Usability judge_installation(const DeviceList& list) {
  const std::string runtime = cuda_version_text(list.runtime_cuda_version);
  if (list.driver_cuda_version == 0) {
    return unfit(Unfit::kNoDriver, "no NVIDIA driver is loaded",
                 "install the NVIDIA driver (in a container: start it with --gpus all), or run "
                 "with --device cpu");
  }
  if (lane_of_cuda(list.runtime_cuda_version) == nullptr) {
    const std::string_view oldest = cuda_lanes().back().name;
    return unfit(
        Unfit::kRuntimeTooOld,
        fmt::format("the CUDA runtime is {}, the oldest supported one is {}", runtime, oldest),
        fmt::format("use an image or a toolkit with CUDA {} or later and build again", oldest));
  }
  DriverFault fault =
      driver_fault(list.driver_version, list.driver_cuda_version, list.runtime_cuda_version);
  if (!fault.reason.empty()) {
    return unfit(Unfit::kDriverTooOld, std::move(fault.reason), std::move(fault.what_to_do));
  }
  if (list.devices.empty()) {
    return unfit(
        Unfit::kNoDevice,
        "the driver shows no GPU" + (list.error.empty() ? std::string() : " (" + list.error + ")"),
        "check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's --gpus option, or run "
        "with --device cpu");
  }
  return {};
}

// An architecture's name, taken apart: "sm_90a" is 9, 0 and 'a'.
struct ParsedArchitecture {
  int major = 0, minor = 0;
  char suffix = 0;
  bool ptx = false;
  bool valid = false;
};

ParsedArchitecture parse_architecture(std::string_view text) {
  ParsedArchitecture parsed;
  if (text.starts_with("sm_")) {
    text.remove_prefix(3);
  } else if (text.starts_with("compute_")) {
    text.remove_prefix(8);
    parsed.ptx = true;
  }
  if (text.ends_with("-real")) text.remove_suffix(5);
  if (text.ends_with("-virtual")) {
    text.remove_suffix(8);
    parsed.ptx = true;
  }
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 10) return parsed;
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (rest.size() > 1 || (rest.size() == 1 && rest != "a" && rest != "f")) return parsed;
  parsed.major = number / 10;
  parsed.minor = number % 10;
  parsed.suffix = rest.empty() ? '\0' : rest[0];
  parsed.valid = true;
  return parsed;
}

}  // namespace

const DeviceInfo* find_device(const DeviceList& list, int index) {
  const auto found = std::find_if(list.devices.begin(), list.devices.end(),
                                  [&](const DeviceInfo& d) { return d.index == index; });
  return found == list.devices.end() ? nullptr : &*found;
}

Usability judge_device(const DeviceList& list, int index, std::string_view architectures) {
  const Usability installation = judge_installation(list);
  if (!installation.usable()) return installation;
  const DeviceInfo* found = find_device(list, index);
  if (found == nullptr) {
    return unfit(Unfit::kNoSuchIndex,
                 fmt::format("GPU {} was asked for, found {} GPU(s)", index, list.devices.size()),
                 "choose one that --list-devices shows");
  }
  for (const std::string& architecture : split_architectures(architectures)) {
    if (architecture_runs_on(architecture, found->sm_major, found->sm_minor)) return {};
  }
  return unfit(
      Unfit::kNoCode,
      fmt::format("{} is sm_{}{}, this binary holds code for {}", found->name, found->sm_major,
                  found->sm_minor, architectures.empty() ? "no GPU" : std::string(architectures)),
      found->sm_major < 8
          ? std::string("use a GPU of compute capability 8.0 or later (bf16), or --device cpu")
          : fmt::format("build for it: MKBENCH_CUDA_ARCHITECTURES={}{}{}-real scripts/setup.sh",
                        found->sm_major, found->sm_minor, found->sm_major >= 9 ? "a" : ""));
}

bool architecture_runs_on(std::string_view architecture, int sm_major, int sm_minor) {
  const ParsedArchitecture a = parse_architecture(architecture);
  if (!a.valid) return false;
  if (a.suffix == 'a') return a.major == sm_major && a.minor == sm_minor;
  const bool same_family = a.major == sm_major && a.minor <= sm_minor;
  return same_family || (a.ptx && a.suffix == '\0' && a.major < sm_major);
}

std::vector<std::string> split_architectures(std::string_view list) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : list) {
    if (c != ';' && c != ',' && c != ' ') {
      part += c;
    } else if (!part.empty()) {
      parts.push_back(std::move(part));
      part.clear();
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

double pin_rate(int memory_clock_khz, int bus_width_bits) {
  if (memory_clock_khz <= 0 || bus_width_bits <= 0) return 0;
  return 2.0 * memory_clock_khz * 1e3 * bus_width_bits / 8 / 1e9;
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

nlohmann::json to_json(const DeviceInfo& d) {
  nlohmann::json card = json_fields::write(d.state);
  card["other_processes"] = std::move(card["processes"]);
  card.erase("processes");
  card.update({{"index", d.index},
               {"name", d.name},
               {"uuid", d.uuid},
               {"sm", fmt::format("{}.{}", d.sm_major, d.sm_minor)},
               {"sm_count", d.sm_count},
               {"l2_bytes", d.l2_bytes},
               {"pin_gb_per_s", d.pin_gb_per_s},
               {"total_bytes", d.total_bytes},
               {"free_bytes", d.free_bytes}});
  return card;
}

}  // namespace mkbench
