// Facts about the machine outside its GPUs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mkbench {

// WSL2 mounts the user-mode half of Windows' driver. A Linux driver installed inside WSL2 hides it
// and finds no card.
struct Wsl {
  int version = 0;              // 1 or 2; 0 outside WSL
  std::string windows_libcuda;  // path of Windows' libcuda; empty if missing
  std::string linux_libcuda;    // path of a Linux driver's libcuda, installed inside; else empty
};

// This machine, as far as the process's container shows it.
struct HostMachine {
  double cores = 0;  // usable ones: limited by affinity and the control groups' CPU quotas
  int64_t memory_total = 0, memory_free = 0;  // bytes, within control groups' limits; 0 if unknown
  std::string disk_folder;
  int64_t disk_total = 0, disk_free = 0;  // bytes, of the disk that holds disk_folder
  int64_t shared_total = 0;               // bytes of /dev/shm; 0 if there is none
  Wsl wsl;
  std::string container;  // "docker", "podman", "kubernetes", "lxc"; empty outside a container
};

// Files are read below `root`; disk sizes are always this machine's.
HostMachine read_host_machine(const std::filesystem::path& folder,
                              const std::filesystem::path& root = "/");

// Bytes of memory that this process can still take within its control groups' limits
// (free_memory.h); 0 if unknown.
int64_t host_free_bytes();

// A process's memory in bytes, with a page that n processes share counted as 1/n (the kernel's
// Pss); 0 if unknown.
int64_t resident_bytes(int pid);

// The `env.cpu` part of reports: name, threads, kernel, machine.
nlohmann::json describe_cpu();

}  // namespace mkbench
