// Facts about the machine outside its GPUs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace mkbench {

// What this process can still take, control groups included (free_memory.h), in bytes; 0 where that
// is not known.
int64_t host_free_bytes();

// Bytes a second at which all cores read a buffer larger than the caches; for estimates only.
double host_read_bytes_per_second();

// The `env.cpu` part of reports: name, threads, kernel, machine.
nlohmann::json describe_cpu();

}  // namespace mkbench
