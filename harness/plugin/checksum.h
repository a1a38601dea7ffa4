// Have a plugin's weights on the GPU been changed?
#pragma once

#include <cstddef>
#include <cstdint>

namespace mkbench {

// Of `words` 64-bit words of device memory; a changed, moved or swapped word changes it. Waits for
// the default stream. Throws Error(kCuda).
uint64_t device_checksum(const void* data, size_t words);

}  // namespace mkbench
