#include <fmt/format.h>

#include "harness/device/cuda_lanes.h"
#include "harness/device/doctor_parts.h"
#include "harness/report/known_errors.h"

namespace mkbench::doctor {
namespace {

constexpr char kNoDriver[] = "no NVIDIA driver is loaded";
constexpr char kInstallDriver[] =
    "install the NVIDIA driver (in a container: start it with --gpus all), or run with --device "
    "cpu";

// What is wrong with driver or runtime concerns every card and is told in its own row.
bool told_above(Unfit unfit) {
  return unfit == Unfit::kNoDriver || unfit == Unfit::kDriverTooOld ||
         unfit == Unfit::kRuntimeTooOld;
}

void judge_without_host(const DoctorInputs& inputs, DoctorReport& report, Items& items) {
  const std::string& driver = report.devices.driver_version;
  if (driver.empty()) {
    add_of_card(inputs, items, "driver", kNoDriver, kInstallDriver);
  } else if (lane_for_driver(driver, 0) == nullptr) {
    const CudaLane& oldest = cuda_lanes().back();
    add_of_card(
        inputs, items, "driver",
        fmt::format("{} is too old: {} is the oldest that mkbench can be built for", driver,
                    oldest.driver),
        fmt::format("update the driver to {} or later, or run with --device cpu", oldest.driver));
  } else {
    items.fine("driver", driver);
  }
  items.problem("CUDA engines", inputs.card_problem, advice_for(inputs.card_problem, kRepair));
  report.usability = {Unfit::kNoCode, inputs.card_problem, kRepair};
}

void judge_driver(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const DeviceList& list = report.devices;
  const Usability& use = report.usability;
  if (list.driver_cuda_version == 0 && list.driver_version.empty()) {
    add_of_card(inputs, items, "driver", kNoDriver, kInstallDriver);
  } else if (list.driver_cuda_version == 0) {
    const std::string text = "libcuda.so.1 not found";
    add_of_card(inputs, items, "driver",
                fmt::format("{} is loaded, but its {}", list.driver_version, text),
                advice_for(text, kInstallDriver));
  } else if (use.unfit == Unfit::kDriverTooOld) {
    add_of_card(inputs, items, "driver", use.reason, use.what_to_do);
  } else {
    items.fine("driver", fmt::format("{} (CUDA {})",
                                     list.driver_version.empty() ? "present" : list.driver_version,
                                     cuda_version_text(list.driver_cuda_version)));
  }
  const std::string runtime = cuda_version_text(list.runtime_cuda_version);
  if (lane_of_cuda(list.runtime_cuda_version) != nullptr) {
    items.fine("runtime", "CUDA " + runtime);
  } else {
    add_of_card(inputs, items, "runtime",
                fmt::format("CUDA {}, wanted {} or later", runtime, cuda_lanes().back().name),
                "scripts/setup.sh builds with a toolkit that serves, or says where to get one");
  }
}

void judge_limits(const DoctorInputs& inputs, const DeviceInfo& d, const std::string& topic,
                  Items& items) {
  const GpuState& s = d.state;
  if (s.power_limit_w && s.default_power_limit_w && *s.power_limit_w < *s.default_power_limit_w) {
    items.warning(topic,
                  fmt::format("power limit {:.0f} W, default {:.0f} W: slower than others of its "
                              "kind",
                              *s.power_limit_w, *s.default_power_limit_w),
                  fmt::format("sudo nvidia-smi -i {} -pl {:.0f}, or say so beside the times",
                              d.index, *s.default_power_limit_w));
  }
  if (s.compute_mode == "prohibited") {
    add_of_card(inputs, items, topic, "compute mode prohibited: no program may compute on it",
                fmt::format("sudo nvidia-smi -i {} -c DEFAULT", d.index));
  } else if (!s.compute_mode.empty()) {
    items.fine(topic, fmt::format("compute mode {}{}", s.compute_mode,
                                  d.exclusive ? ": engines are opened one at a time" : ""));
  }
}

void judge_state(const DeviceInfo& d, const std::string& topic, Items& items) {
  const GpuState& s = d.state;
  if (s.sm_clock_mhz) {
    std::string text = fmt::format("{} MHz", *s.sm_clock_mhz);
    if (s.max_sm_clock_mhz) text += fmt::format(" of {}", *s.max_sm_clock_mhz);
    if (s.power_w) text += fmt::format(", {:.0f} W", *s.power_w);
    if (s.power_limit_w) text += fmt::format(" of {:.0f}", *s.power_limit_w);
    if (s.temperature_c) text += fmt::format(", {} C", *s.temperature_c);
    if (s.throttle_reasons) text += ", clocks limited by: " + s.throttle_text;
    if (s.throttle_reasons && is_throttled(*s.throttle_reasons)) {
      items.warning(topic, text, "times vary while clocks are limited: cool it or raise the limit");
    } else {
      items.fine(topic, text);
    }
  }
  if (s.processes.empty()) return;
  std::string others;
  for (const GpuProcess& p : s.processes) {
    others += fmt::format("{}{}{}", others.empty() ? "" : ", ", p.pid,
                          p.name.empty() ? "" : " " + p.name);
  }
  items.warning(topic, fmt::format("{} other process(es): {}", s.processes.size(), others),
                "times are not to be trusted while others use the card; --gpu chooses another");
}

void judge_devices(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const Usability& asked = report.usability;
  const DeviceList& list = report.devices;
  if (list.devices.empty()) {
    if (told_above(asked.unfit)) {
      items.note("GPU", "none to be seen without a driver that fits");
    } else {
      add_of_card(inputs, items, "GPU", list.error.empty() ? "none" : "none: " + list.error,
                  advice_for(list.error, asked.what_to_do));
    }
    return;
  }
  for (const DeviceInfo& d : list.devices) {
    const std::string topic = fmt::format("GPU {}", d.index);
    const Usability use = judge_device(list, d.index, inputs.our_architectures);
    const std::string text = fmt::format(
        "{}, sm_{}{}, {} multiprocessors, {:.0f} MiB L2, {} free of {}{}{}", d.name, d.sm_major,
        d.sm_minor, d.sm_count, static_cast<double>(d.l2_bytes) / (1024.0 * 1024.0),
        gib(d.free_bytes), gib(d.total_bytes), d.state.ecc.value_or(false) ? ", ECC" : "",
        d.state.mig.value_or(false) ? ", MIG" : "");
    if (use.usable() || told_above(use.unfit)) {
      items.fine(topic, text);
    } else if (d.index == inputs.gpu) {
      add_of_card(inputs, items, topic, text + ": " + use.reason, use.what_to_do);
    } else {
      items.warning(topic, text + ": " + use.reason, use.what_to_do);
    }
    judge_state(d, topic, items);
    judge_limits(inputs, d, topic, items);
  }
  if (asked.unfit == Unfit::kNoSuchIndex)
    add_of_card(inputs, items, fmt::format("GPU {}", inputs.gpu), asked.reason, asked.what_to_do);
}

}  // namespace

void judge_cards(const DoctorInputs& inputs, DoctorReport& report, Items& items) {
  if (!inputs.card_problem.empty()) {
    judge_without_host(inputs, report, items);
    return;
  }
  report.usability = judge_device(report.devices, inputs.gpu, inputs.our_architectures);
  judge_driver(inputs, report, items);
  judge_devices(inputs, report, items);
}

}  // namespace mkbench::doctor
