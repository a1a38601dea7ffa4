// A fault of the ring megakernel in one 64-bit word, so that raising it takes few instructions. Every
// wait contains a copy of the code that raises a fault: with one store for each field, the 90 copies
// cost 25 us a token in instruction fetches (H200).
#pragma once

#include "kernels/fault.h"
#include "kernels/ring/layout.h"

namespace mkbench::ring {

using FaultWord = unsigned long long;  // 0: none

// Value of the layer field if a block waited for its own ring.
inline constexpr int kOwnRing = 127;

// Fields from the highest bit down: raised 2, phase 4, layer 7, block 8, position 19, expected 12
// and seen 12 bits. Higher bits of a value are cut off.
MKBENCH_HD constexpr FaultWord pack_fault(int raised, int phase, int layer, int block, int position,
                                          unsigned expected, unsigned seen) {
  const FaultWord where =
      static_cast<FaultWord>(raised) << 62 | static_cast<FaultWord>(phase & 0xf) << 58 |
      static_cast<FaultWord>(layer & 0x7f) << 51 | static_cast<FaultWord>(block & 0xff) << 43;
  return where | static_cast<FaultWord>(position & 0x7ffff) << 24 | (expected & 0xfffu) << 12 |
         (seen & 0xfffu);
}

// Writes the fields of `word` into `status`; its progress_position stays.
inline void unpack_fault(FaultWord word, KernelStatus& status) {
  const auto bits = [word](int from, int count) {
    return static_cast<int>(word >> from & ((1ull << count) - 1));
  };
  status.raised = bits(62, 2);
  status.phase = bits(58, 4);
  status.layer = bits(51, 7);
  status.block = bits(43, 8);
  status.position = bits(24, 19);
  status.expected = bits(12, 12);
  status.seen = bits(0, 12);
}

}  // namespace mkbench::ring
