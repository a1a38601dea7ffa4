#include "harness/device/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/device/host_machine.h"

namespace mkbench {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "13.0" from the output of `nvcc --version`; empty when nvcc does not run.
std::string ask_version(const std::filesystem::path& nvcc) {
  std::string quoted = nvcc.string();
  if (quoted.find('\'') != std::string::npos) return "";
  std::FILE* pipe = popen(("'" + quoted + "' --version 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 512> chunk{};
  while (std::fgets(chunk.data(), static_cast<int>(chunk.size()), pipe) != nullptr) {
    output += chunk.data();
  }
  pclose(pipe);
  const size_t found = output.find("release ");
  if (found == std::string::npos) return "";
  const size_t begin = found + std::string_view("release ").size();
  return output.substr(begin, output.find_first_not_of("0123456789.", begin) - begin);
}

// 12.8 or later; versions compare as numbers, not as text.
bool new_enough(const std::string& version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return false;
  return major > 12 || (major == 12 && minor >= 8);
}

// Appends items to the report, in the order in which they are shown.
class Items {
 public:
  explicit Items(std::vector<DoctorItem>& items) : items_(items) {}
  void fine(std::string topic, std::string text) {
    items_.push_back({std::move(topic), Finding::kFine, std::move(text), ""});
  }
  void warning(std::string topic, std::string text, std::string what_to_do) {
    items_.push_back({std::move(topic), Finding::kWarning, std::move(text), std::move(what_to_do)});
  }
  void problem(std::string topic, std::string text, std::string what_to_do) {
    items_.push_back({std::move(topic), Finding::kProblem, std::move(text), std::move(what_to_do)});
  }

 private:
  std::vector<DoctorItem>& items_;
};

constexpr char kRepair[] =
    "scripts/setup.sh repairs the installation: it fetches what is missing and builds anew";

// Judges a machine on which the host of the CUDA engines did not start: nothing asked CUDA.
void judge_without_card(const DoctorInputs& inputs, DoctorReport& report, Items& items) {
  const std::string driver = driver_version();
  if (driver.empty()) {
    items.problem("driver", "no NVIDIA driver is loaded",
                  "install the NVIDIA driver (in a container: start it with --gpus all), or run "
                  "with --device cpu");
  } else {
    items.fine("driver", driver);
  }
  items.problem("CUDA engines", inputs.card_problem, kRepair);
  report.usability = {Unfit::kNoCode, inputs.card_problem, kRepair};
}

void judge_driver(const DoctorReport& report, Items& items) {
  const DeviceList& list = report.devices;
  const Usability& use = report.usability;
  if (list.driver_cuda_version == 0) {
    items.problem("driver", use.reason, use.what_to_do);
  } else {
    const std::string text =
        fmt::format("{} (CUDA {})", list.driver_version.empty() ? "present" : list.driver_version,
                    cuda_version_text(list.driver_cuda_version));
    if (use.unfit == Unfit::kDriverTooOld) {
      items.problem("driver", text + ": " + use.reason, use.what_to_do);
    } else {
      items.fine("driver", text);
    }
  }
  const std::string runtime = cuda_version_text(list.runtime_cuda_version);
  if (new_enough(runtime)) {
    items.fine("runtime", "CUDA " + runtime);
  } else {
    items.problem("runtime", "CUDA " + runtime + ", wanted 12.8 or later",
                  "use an image or a toolkit with CUDA 12.8 or later and build again");
  }
}

// Only building needs a toolkit, so no finding here is a problem for a built mkbench.
void judge_toolkit(const DoctorReport& report, Items& items) {
  const Toolkit& toolkit = report.toolkit;
  const char* what_to_do = "scripts/run.sh installs a compiler into its virtual environment";
  if (toolkit.nvcc.empty()) {
    items.fine("toolkit", std::string("no nvcc on this machine; ") + what_to_do);
  } else if (toolkit.version.empty()) {
    items.warning("toolkit", toolkit.nvcc + " does not tell its version", what_to_do);
  } else if (!new_enough(toolkit.version)) {
    items.warning("toolkit",
                  fmt::format("{} is CUDA {}, older than 12.8", toolkit.nvcc, toolkit.version),
                  what_to_do);
  } else {
    items.fine("toolkit", fmt::format("CUDA {} ({})", toolkit.version, toolkit.nvcc));
  }
}

void judge_device_state(const DeviceInfo& d, const std::string& topic, Items& items) {
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
  if (!s.processes.empty()) {
    std::string others;
    for (const GpuProcess& p : s.processes) {
      others += fmt::format("{}{}{}", others.empty() ? "" : ", ", p.pid,
                            p.name.empty() ? "" : " " + p.name);
    }
    items.warning(topic, fmt::format("{} other process(es): {}", s.processes.size(), others),
                  "times are not to be trusted while others use the card; --gpu chooses another");
  }
}

void judge_devices(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  if (report.devices.devices.empty()) {
    items.problem("GPU", "none", report.usability.what_to_do);
    return;
  }
  for (const DeviceInfo& d : report.devices.devices) {
    const std::string topic = fmt::format("GPU {}", d.index);
    const Usability use = judge_device(report.devices, d.index, inputs.our_architectures);
    const std::string text = fmt::format(
        "{}, sm_{}{}, {} multiprocessors, {:.0f} MiB L2, {} free of {}{}{}", d.name, d.sm_major,
        d.sm_minor, d.sm_count, static_cast<double>(d.l2_bytes) / (1024.0 * 1024.0),
        gib(d.free_bytes), gib(d.total_bytes), d.state.ecc.value_or(false) ? ", ECC" : "",
        d.state.mig.value_or(false) ? ", MIG" : "");
    if (use.usable()) {
      items.fine(topic, text);
    } else if (d.index == inputs.gpu) {
      items.problem(topic, text + ": " + use.reason, use.what_to_do);
    } else {
      items.warning(topic, text + ": " + use.reason, use.what_to_do);
    }
    judge_device_state(d, topic, items);
  }
}

void judge_code(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  if (inputs.card_problem.empty()) {
    items.fine("our code",
               inputs.our_architectures.empty() ? "no GPU code" : inputs.our_architectures);
  }
  // Where ring cannot run, plain can, so this is no problem.
  if (report.usability.usable()) {
    items.fine("megakernel", inputs.ring_obstacle.empty()
                                 ? fmt::format("ring runs {}", inputs.model)
                                 : "plain, not ring: " + inputs.ring_obstacle);
  }
  if (!inputs.torch_problem.empty()) {
    items.problem("libtorch", inputs.torch_problem, kRepair);
    return;
  }
  const std::string torch =
      fmt::format("{} built on CUDA {}, {}", inputs.torch_version,
                  inputs.torch_cuda_version.empty() ? "none" : inputs.torch_cuda_version,
                  inputs.torch_architectures.empty() ? "architectures unknown without a driver"
                                                     : inputs.torch_architectures);
  const DeviceInfo* device = find_device(report.devices, inputs.gpu);
  const char* what_to_do = "install a libtorch built for this card (a newer torch wheel)";
  if (device == nullptr) {
    items.fine("libtorch", torch);
    return;
  }
  const auto parts = split_architectures(inputs.torch_architectures);
  const bool has_code = std::any_of(parts.begin(), parts.end(), [&](const std::string& a) {
    return architecture_runs_on(a, device->sm_major, device->sm_minor);
  });
  if (!parts.empty() && !has_code) {
    items.problem("libtorch",
                  fmt::format("{}: no code for sm_{}{}", torch, device->sm_major, device->sm_minor),
                  what_to_do);
  } else if (!inputs.torch_cuda_available) {
    items.problem("libtorch", torch + ": does not see the GPU", what_to_do);
  } else {
    items.fine("libtorch", torch);
  }
}

void judge_operation(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const DeviceInfo* device = find_device(report.devices, inputs.gpu);
  if (device == nullptr) return;
  if (device->has_bf16()) {
    items.fine("bf16", "in hardware");
  } else {
    items.problem("bf16", fmt::format("sm_{}{} has none", device->sm_major, device->sm_minor),
                  "use a GPU of compute capability 8.0 or later, or --device cpu");
  }
  if (!report.checked) return;
  if (report.check.ok) {
    items.fine("operation",
               fmt::format("bf16 dot product on {} cooperating blocks: {:.0f}, as expected",
                           report.check.blocks, report.check.got));
  } else {
    items.problem("operation", report.check.error,
                  "the card does not compute: look at dmesg (Xid), nvidia-smi -q and the driver");
  }
}

void judge_memory(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const DeviceInfo* device = find_device(report.devices, inputs.gpu);
  if (device != nullptr && inputs.device_bytes_needed > 0) {
    const std::string text = fmt::format("{} on the GPU needs {}, free {}", inputs.model,
                                         gib(inputs.device_bytes_needed), gib(device->free_bytes));
    if (device->free_bytes >= inputs.device_bytes_needed) {
      items.fine("GPU memory", text);
    } else {
      items.problem("GPU memory", text, "free memory on the card, or choose a smaller --model");
    }
  }
  if (inputs.host_bytes_needed <= 0 || report.host_bytes_free <= 0) return;
  const std::string text = fmt::format("{} needs {}, free {}", inputs.model,
                                       gib(inputs.host_bytes_needed), gib(report.host_bytes_free));
  if (report.host_bytes_free >= inputs.host_bytes_needed) {
    items.fine("host memory", text);
  } else {
    items.warning("host memory", text, "close other programs, or choose a smaller --model");
  }
}

const char* finding_text(Finding finding) {
  switch (finding) {
    case Finding::kFine:
      return "ok";
    case Finding::kWarning:
      return "warning";
    case Finding::kProblem:
      return "problem";
  }
  return "";
}

}  // namespace

Toolkit find_toolkit() {
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (*environment(name) != 0)
      folders.push_back(std::filesystem::path(environment(name)) / "bin");
  }
  std::string path = environment("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path nvcc = folder / "nvcc";
    if (access(nvcc.c_str(), X_OK) == 0) return {nvcc.string(), ask_version(nvcc)};
  }
  return {};
}

void judge_machine(const DoctorInputs& inputs, DoctorReport& report) {
  report.items.clear();
  Items items(report.items);
  if (inputs.card_problem.empty()) {
    report.usability = judge_device(report.devices, inputs.gpu, inputs.our_architectures);
    judge_driver(report, items);
    judge_devices(inputs, report, items);
  } else {
    judge_without_card(inputs, report, items);
  }
  judge_toolkit(report, items);
  judge_code(inputs, report, items);
  judge_operation(inputs, report, items);
  judge_memory(inputs, report, items);

  const bool problem =
      std::any_of(report.items.begin(), report.items.end(),
                  [](const DoctorItem& item) { return item.finding == Finding::kProblem; });
  report.gpu_ready = report.usability.usable() && report.checked && report.check.ok && !problem;
  if (report.gpu_ready) {
    report.verdict = fmt::format("ready on GPU {}", inputs.gpu);
    report.next = "mkbench --compare eager";
  } else if (!inputs.torch_problem.empty() || !inputs.card_problem.empty()) {
    report.verdict = "nothing can be judged: a program of mkbench cannot start";
    report.next = "scripts/setup.sh";
  } else {
    const std::string reason =
        !report.usability.usable() ? report.usability.reason : "see the problems above";
    report.verdict = fmt::format(
        "no usable GPU ({}); on the CPU, the host twin runs instead of the megakernel", reason);
    report.next = "mkbench --compare eager --device cpu";
  }
}

std::vector<std::string> doctor_lines(const DoctorReport& report) {
  std::vector<std::string> lines;
  for (const DoctorItem& item : report.items) {
    lines.push_back(
        fmt::format("{:<9}{:<13}{}", finding_text(item.finding), item.topic, item.text));
    if (!item.what_to_do.empty()) {
      lines.push_back(fmt::format("{:<22}-> {}", "", item.what_to_do));
    }
  }
  lines.push_back("");
  lines.push_back("verdict: " + report.verdict);
  lines.push_back("next:    " + report.next);
  return lines;
}

nlohmann::json to_json(const DoctorReport& report) {
  nlohmann::json devices = nlohmann::json::array(), items = nlohmann::json::array();
  for (const DeviceInfo& d : report.devices.devices) devices.push_back(to_json(d));
  for (const DoctorItem& item : report.items) {
    items.push_back({{"topic", item.topic},
                     {"finding", finding_text(item.finding)},
                     {"text", item.text},
                     {"what_to_do", item.what_to_do}});
  }
  return {
      {"driver", report.devices.driver_version},
      {"driver_cuda", report.devices.driver_cuda_version == 0
                          ? nlohmann::json(nullptr)
                          : nlohmann::json(cuda_version_text(report.devices.driver_cuda_version))},
      {"runtime_cuda", cuda_version_text(report.devices.runtime_cuda_version)},
      {"toolkit", {{"nvcc", report.toolkit.nvcc}, {"version", report.toolkit.version}}},
      {"devices", devices},
      {"items", items},
      {"gpu_ready", report.gpu_ready},
      {"verdict", report.verdict},
      {"next", report.next}};
}

}  // namespace mkbench
