// Facts about the machine outside its GPUs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace mkbench {

// What this process can still take, control groups included (free_memory.h), in bytes; 0 where that
// is not known.
int64_t host_free_bytes();

// Bytes of memory that a process holds, where each page that n processes share counts as 1/n of it
// in each (the kernel's Pss); 0 where that is not known.
int64_t resident_bytes(int pid);

// The `env.cpu` part of reports: name, threads, kernel, machine.
nlohmann::json describe_cpu();

}  // namespace mkbench
