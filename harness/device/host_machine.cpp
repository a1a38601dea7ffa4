#include "harness/device/host_machine.h"

#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "references/base/free_memory.h"
#include "references/base/usable_cores.h"

namespace mkbench {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

namespace fs = std::filesystem;

// The file's whole text; empty if it cannot be read.
std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Total and free bytes of the disk that holds `folder`; zeros if statvfs() fails.
std::pair<int64_t, int64_t> disk_bytes(const fs::path& folder) {
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return {0, 0};
  const auto block = static_cast<int64_t>(disk.f_frsize);
  return {block * static_cast<int64_t>(disk.f_blocks), block * static_cast<int64_t>(disk.f_bavail)};
}

// A Kubernetes pod also looks like docker or podman, so Kubernetes' marks are tested first.
std::string container_kind(const fs::path& root) {
  const std::string groups = text_of(root / "proc/self/cgroup") + text_of(root / "proc/1/cgroup");
  const std::string mounts = text_of(root / "proc/self/mountinfo");
  // Names the kind: systemd and podman write it to the file, lxc to the environment of process 1.
  const std::string told =
      text_of(root / "run/systemd/container") + text_of(root / "proc/1/environ");
  const auto in = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  if (is_there(root / "var/run/secrets/kubernetes.io") || in(groups, "kubepods") ||
      in(mounts, "/kubelet/"))
    return "kubernetes";
  if (is_there(root / "run/.containerenv") || in(groups, "libpod") || in(told, "podman"))
    return "podman";
  if (is_there(root / ".dockerenv") || in(groups, "docker") || in(mounts, "/docker/containers/"))
    return "docker";
  if (in(groups, "/lxc") || in(told, "lxc")) return "lxc";
  return "";
}

constexpr char kWindowsFolder[] = "usr/lib/wsl";

int version_of_wsl(const fs::path& root) {
  std::string kernel = text_of(root / "proc/version") + text_of(root / "proc/sys/kernel/osrelease");
  for (char& c : kernel) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto says = [&](const char* word) { return kernel.find(word) != std::string::npos; };
  // WSL2's kernel is named "..-microsoft-standard-WSL2"; WSL1 only says "Microsoft".
  if (says("microsoft")) return says("wsl2") || says("microsoft-standard") ? 2 : 1;
  // A custom WSL2 kernel has another name; /dev/dxg and Windows' folder are still there.
  return is_there(root / "dev/dxg") && is_there(root / kWindowsFolder) ? 2 : 0;
}

// The path with all symbolic links resolved; empty if the file is missing.
std::string real_file(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? "" : real.string();
}

Wsl read_wsl(const fs::path& root) {
  constexpr char kLibrary[] = "libcuda.so.1";
  Wsl wsl;
  wsl.version = version_of_wsl(root);
  if (wsl.version != 2) return wsl;
  wsl.windows_libcuda = real_file(root / kWindowsFolder / "lib" / kLibrary);
  // Does not count links to Windows' libcuda: NVIDIA's container tools put them where Linux drivers
  // put their own libcuda.
  const std::string windows = real_file(root / kWindowsFolder);
  for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current",
                             "lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"}) {
    const std::string found = real_file(root / folder / kLibrary);
    if (found.empty() || (!windows.empty() && found.starts_with(windows + "/"))) continue;
    wsl.linux_libcuda = found;
    break;
  }
  return wsl;
}

}  // namespace

HostMachine read_host_machine(const fs::path& folder, const fs::path& root) {
  HostMachine machine;
  machine.cores = usable_cores(root);
  const FreeMemory memory = free_memory(root);
  machine.memory_total = static_cast<int64_t>(memory.total);
  machine.memory_free = memory.limit.empty() ? 0 : static_cast<int64_t>(memory.bytes);
  machine.disk_folder = folder.string();
  std::tie(machine.disk_total, machine.disk_free) = disk_bytes(folder);
  machine.shared_total = disk_bytes(root / "dev/shm").first;
  machine.wsl = read_wsl(root);
  machine.container = container_kind(root);
  return machine;
}

nlohmann::json describe_cpu() {
  utsname system = {};
  uname(&system);
  return {{"name", cpu_name()},
          {"threads", std::thread::hardware_concurrency()},
          {"kernel", std::string(system.sysname) + " " + system.release},
          {"machine", system.machine}};
}

int64_t host_free_bytes() {
  const FreeMemory free = free_memory();
  return free.limit.empty() ? 0 : static_cast<int64_t>(free.bytes);
}

int64_t resident_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  int64_t kilobytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:") && (std::istringstream(line.substr(4)) >> kilobytes))
      return 1024 * kilobytes;
  }
  return 0;
}

}  // namespace mkbench
