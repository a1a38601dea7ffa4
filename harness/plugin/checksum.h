// A checksum over GPU memory, which shows whether a plugin has changed its weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mkbench {

// The checksum of `words` 64-bit words of device memory; a changed, moved or swapped word changes
// the result. Waits for the default stream. Throws Error(kCuda).
uint64_t device_checksum(const void* data, size_t words);

}  // namespace mkbench
