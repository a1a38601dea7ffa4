#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "harness/device/cuda_lanes.h"
#include "harness/device/doctor_parts.h"
#include "harness/device/program_output.h"

namespace mkbench {
namespace {

constexpr double kGb = 1e9;

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "13.0" from the output of `nvcc --version`; empty when nvcc does not run.
std::string ask_version(const std::filesystem::path& nvcc) {
  const std::string output = program_output({nvcc.string(), "--version"}).text;
  const size_t found = output.find("release ");
  if (found == std::string::npos) return "";
  const size_t begin = found + std::string_view("release ").size();
  return output.substr(begin, output.find_first_not_of("0123456789.", begin) - begin);
}

std::string gb(int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / kGb); }

}  // namespace

Toolkit find_toolkit() {
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (*environment(name) != 0)
      folders.push_back(std::filesystem::path(environment(name)) / "bin");
  }
  const std::vector<std::filesystem::path> on_path = path_folders();
  folders.insert(folders.end(), on_path.begin(), on_path.end());
  const std::string nvcc = find_in(folders, "nvcc");
  return nvcc.empty() ? Toolkit{} : Toolkit{nvcc, ask_version(nvcc)};
}

namespace doctor {

// Only building needs a toolkit, so no finding here is a problem for a built mkbench.
void judge_toolkit(const DoctorReport& report, Items& items) {
  const Toolkit& toolkit = report.toolkit;
  const DeviceList& list = report.devices;
  // Without a driver set-up takes the newest lane.
  const bool driver = list.driver_cuda_version > 0 || !list.driver_version.empty();
  const CudaLane* of_driver =
      driver ? lane_for_driver(list.driver_version, list.driver_cuda_version) : nullptr;
  const CudaLane& lane = of_driver != nullptr ? *of_driver : cuda_lanes().front();
  const bool from_pypi = lane.toolkit == "pypi";
  const std::string where =
      from_pypi ? std::string("scripts/setup.sh installs a compiler into its virtual environment")
                : fmt::format(
                      "to build for this driver: apt-get install {} (NVIDIA's "
                      "repository), or the image {}",
                      lane.toolkit, lane.image);
  const int version = cuda_version_number(toolkit.version);
  if (toolkit.nvcc.empty() && from_pypi) {
    items.fine("toolkit", "no nvcc on this machine; " + where);
  } else if (toolkit.nvcc.empty()) {
    items.warning("toolkit", "no nvcc on this machine", where);
  } else if (version == 0) {
    items.warning("toolkit", toolkit.nvcc + " does not tell its version", where);
  } else if (const CudaLane* own = lane_of_cuda(version); own == nullptr) {
    items.warning("toolkit",
                  fmt::format("{} is CUDA {}, older than {}", toolkit.nvcc, toolkit.version,
                              cuda_lanes().back().name),
                  where);
  } else if (of_driver != nullptr && own->cuda > of_driver->cuda) {
    items.warning(
        "toolkit",
        fmt::format("{} is CUDA {}, newer than the driver runs", toolkit.nvcc, toolkit.version),
        where);
  } else {
    std::string text = fmt::format("CUDA {} ({})", toolkit.version, toolkit.nvcc);
    if (own->cuda < lane.cuda)
      text += fmt::format(", for scripts/setup.sh --cuda {}; else {}", own->name, where);
    items.fine("toolkit", text);
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
      add_of_card(inputs, items, "GPU memory", text,
                  "free memory on the card, or choose a smaller --model");
    }
  }
  if (inputs.host_bytes_needed <= 0 || report.machine.memory_free <= 0) return;
  const std::string text =
      fmt::format("{} needs {}, free {}{}", inputs.model, gib(inputs.host_bytes_needed),
                  gib(report.machine.memory_free),
                  report.machine.memory_total > 0 ? " of " + gib(report.machine.memory_total) : "");
  if (report.machine.memory_free >= inputs.host_bytes_needed) {
    items.fine("host memory", text);
  } else {
    items.warning("host memory", text,
                  report.machine.wsl.version == 2
                      ? "Windows lends WSL2 a part: memory= under [wsl2] in .wslconfig raises it"
                      : "close other programs, or choose a smaller --model");
  }
}

void judge_surroundings(const DoctorReport& report, Items& items) {
  constexpr double kLittleDisk = 1e9;  // reports, and their plots
  const HostMachine& machine = report.machine;
  items.fine("cores", fmt::format("{:g}", machine.cores));
  if (!machine.disk_folder.empty()) {
    const std::string text = fmt::format("{} free of {} in {}", gb(machine.disk_free),
                                         gb(machine.disk_total), machine.disk_folder);
    if (static_cast<double>(machine.disk_free) < kLittleDisk) {
      items.warning("disk", text, "a run writes a report folder: free some space, or use --out");
    } else {
      items.fine("disk", text);
    }
  }
}

void judge_container(const DoctorReport& report, Items& items) {
  const HostMachine& machine = report.machine;
  items.fine("container",
             machine.container.empty()
                 ? "none"
                 : fmt::format("{}, /dev/shm {}", machine.container, gb(machine.shared_total)));
}

}  // namespace doctor
}  // namespace mkbench
