// A checksum of KV rows on the device, the same whatever the order of addition.
#pragma once

#include <cstdint>

namespace mkbench::plain {

// Over rows [0, positions) of `slabs` slabs of `slab_rows` rows of `row_words` 64-bit words each.
// Synchronous. Throws Error(kCuda).
uint64_t kv_checksum(const void* cache, int slabs, int slab_rows, int positions, int row_words);

}  // namespace mkbench::plain
