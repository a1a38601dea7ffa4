// What a host can say of its machine: the `environment` of reports, memory, and whether a GPU is
// usable.
#pragma once

#include <cstdint>
#include <string>

#include "harness/wire/job.h"

namespace mkbench {

// The machine and the GPU asked for. Touches CUDA and libtorch, so only a host calls it.
ProbeAnswer probe_machine(const ProbeJob& job);

// MemAvailable of /proc/meminfo, in bytes; 0 where it cannot be read.
int64_t host_free_bytes();

// Free bytes of GPU `gpu`; 0 where it cannot be asked.
int64_t device_free_bytes(int gpu);

// PCI address of GPU `gpu`, as NVML wants it; empty where it cannot be asked.
std::string device_bus_id(int gpu);

// Bytes a second at which all cores read a buffer larger than the caches; for estimates only.
double host_read_bytes_per_second();

}  // namespace mkbench
