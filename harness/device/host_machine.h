// Facts about the machine outside its GPUs, and what may be required of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// WSL2 mounts the user-mode half of Windows' driver. A driver for Linux that was installed inside
// hides it, and finds no card.
struct Wsl {
  int version = 0;              // 1 or 2; 0: none
  std::string windows_libcuda;  // of Windows' driver; empty: it is not there
  std::string linux_libcuda;    // of a driver for Linux that was installed inside; empty: none
};

// A part of `mkbench doctor --require gpu=5090,vram=32,..`: whether a rented machine is what was asked for.
struct Requirement {
  std::string key;     // one of kRequirementKeys
  std::string wanted;  // part of the card's name, or a number
  double number = 0;   // of `wanted`, for every key but gpu
};
inline constexpr std::string_view kRequirementKeys[] = {"gpu", "vram", "ram", "cores", "disk"};
// "gpu=5090,vram=32". Throws Error(kBadInput) naming the flag.
std::vector<Requirement> parse_requirements(std::string_view flag, const std::string& text);

// The machine of this process, or what its container shows of it.
struct HostMachine {
  double cores = 0;  // that this process may use: by its affinity and the CPU quota of its groups
  int64_t memory_total = 0, memory_free = 0;  // bytes, groups included; 0 where not known
  std::string disk_folder;
  int64_t disk_total = 0, disk_free = 0;  // bytes, of the disk of that folder
  int64_t shared_total = 0;               // bytes of /dev/shm; 0 without one
  Wsl wsl;
  std::string container;  // "docker", "podman", "kubernetes", "lxc"; empty: none
};

// Files are read below `root`; disk sizes are always this machine's.
HostMachine read_host_machine(const std::filesystem::path& folder,
                              const std::filesystem::path& root = "/");

// Memory that this process can still take, control groups included (free_memory.h), in bytes; 0 if
// it is not known.
int64_t host_free_bytes();

// Bytes of memory that a process holds, where each page that n processes share counts as 1/n of it
// in each (the kernel's Pss); 0 where that is not known.
int64_t resident_bytes(int pid);

// The `env.cpu` part of reports: name, threads, kernel, machine.
nlohmann::json describe_cpu();

}  // namespace mkbench
