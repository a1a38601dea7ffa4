// A checksum of KV rows on the device. It does not depend on the order in which threads add.
#pragma once

#include <cstdint>

namespace mkbench::plain {

// The checksum of rows [0, positions) in each of `slabs` slabs. A slab has `slab_rows` rows of
// `row_words` 64-bit words. Synchronous. Throws Error(kCuda).
uint64_t kv_checksum(const void* cache, int slabs, int slab_rows, int positions, int row_words);

}  // namespace mkbench::plain
