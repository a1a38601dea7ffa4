#include <fmt/format.h>

#include "harness/device/doctor_parts.h"

namespace mkbench::doctor {
namespace {

constexpr char kWslTopic[] = "WSL2";
constexpr char kSearchPath[] = "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH";
constexpr char kRemoveDriver[] =
    "sudo apt-get purge '^nvidia-driver.*' '^libnvidia-compute.*'; in Windows: wsl --shutdown";

// The mistake that is made most: the driver of NVIDIA's instructions for Linux, installed inside.
void judge_linux_driver(const DoctorInputs& inputs, const Wsl& wsl, Items& items) {
  const std::string version = version_of_libcuda(wsl.linux_libcuda);
  const std::string what =
      fmt::format("a driver for Linux{} was installed inside ({})",
                  version.empty() ? "" : " (" + version + ")", wsl.linux_libcuda);
  if (wsl.loads_linux_driver()) {
    add_of_card(inputs, items, kWslTopic,
                "yes; " + what +
                    ", and programs load it in place of Windows', which alone reaches the card",
                kRemoveDriver);
  } else {
    items.warning(kWslTopic, "yes; " + what + ": it is not loaded now, and may be one day",
                  kRemoveDriver);
  }
}

// The numbers of both sides: Windows' driver, and the libcuda that programs load here.
void judge_numbers(const DoctorReport& report, Items& items) {
  constexpr char kDriver[] = "Windows driver";
  const Wsl& wsl = report.machine.wsl;
  const int here = report.devices.driver_cuda_version;
  const std::string loaded = fmt::format(
      "here {} is loaded{}", wsl.loaded_libcuda.empty() ? "no libcuda" : wsl.loaded_libcuda,
      here > 0 ? fmt::format(" (CUDA {})", cuda_version_text(here)) : "");
  if (wsl.windows_driver.empty()) {
    items.note(kDriver, "/usr/lib/wsl/lib/nvidia-smi does not tell its version; " + loaded);
    return;
  }
  const std::string text =
      fmt::format("{} (CUDA {}); {}", wsl.windows_driver,
                  wsl.windows_cuda.empty() ? "unknown" : wsl.windows_cuda, loaded);
  if (here > 0 && !wsl.windows_cuda.empty() && wsl.windows_cuda != cuda_version_text(here)) {
    items.warning(kDriver, text + ": two drivers, where there should be one", kRemoveDriver);
  } else {
    items.fine(kDriver, text);
  }
}

}  // namespace

void judge_wsl(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const Wsl& wsl = report.machine.wsl;
  if (wsl.version == 0) {
    items.fine(kWslTopic, "no");
    return;
  }
  if (wsl.version == 1) {
    add_of_card(inputs, items, kWslTopic, "this is WSL1, which has no GPUs",
                "in Windows: wsl --set-version <distribution> 2");
    return;
  }
  if (!wsl.linux_libcuda.empty()) {
    judge_linux_driver(inputs, wsl, items);
  } else if (wsl.windows_libcuda.empty()) {
    add_of_card(inputs, items, kWslTopic, "yes, without Windows' driver in /usr/lib/wsl/lib",
                "install NVIDIA's driver in Windows, none in Linux; then wsl --shutdown");
    return;
  } else if (report.devices.driver_cuda_version == 0) {
    items.warning(kWslTopic, "yes; Windows' driver is there, and programs do not find it",
                  kSearchPath);
  } else {
    items.fine(kWslTopic, "yes, with Windows' driver in /usr/lib/wsl/lib");
  }
  judge_numbers(report, items);
  items.note(
      "WSL2 limits",
      "Windows may end a kernel after 2 s, keeps clocks, throttling and other processes to itself, "
      "lends part of the memory, and schedules the card for its desktop too",
      "docs/machine.md: what each means for a run, and what to set");
}

}  // namespace mkbench::doctor
