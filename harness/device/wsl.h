// The Windows Subsystem for Linux around this process, and whose NVIDIA driver programs find in it.
// WSL2 mounts the user's half of Windows' driver; a driver for Linux that was installed inside hides
// it, and has no card to drive.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mkbench {

struct Wsl {
  int version = 0;              // 1 or 2; 0: none
  std::string windows_libcuda;  // of Windows' driver; empty: it is not there
  std::string nvidia_smi;       // of Windows' driver; empty: it is not there
  std::string linux_libcuda;    // of a driver for Linux that was installed inside; empty: none

  // What ask_windows_driver() adds; empty where it is not known.
  std::string windows_driver, windows_cuda;  // "581.29", "13.0"
  std::string loaded_libcuda;                // the one that programs get

  bool loads_linux_driver() const {
    return !loaded_libcuda.empty() && loaded_libcuda == linux_libcuda;
  }
};

// Whether the kernel below `root` is one of WSL, and which drivers lie there. Links are followed.
Wsl read_wsl(const std::filesystem::path& root = "/");

// Runs Windows' nvidia-smi, and lets the loader look for libcuda, in processes that are ended after
// `seconds` each: where Windows' side stands still, neither returns.
void ask_windows_driver(Wsl& wsl, double seconds = 10);

// Driver and CUDA in what nvidia-smi prints first: "Driver Version: 581.29  CUDA Version: 13.0", in
// newer ones "KMD Version: 591.44  CUDA UMD Version: 13.1".
void read_smi_header(const std::string& text, Wsl& wsl);

// "550.54.14" of ".../libcuda.so.550.54.14"; empty where the name has no such number.
std::string version_of_libcuda(const std::string& path);

nlohmann::json to_json(const Wsl& wsl);

}  // namespace mkbench
