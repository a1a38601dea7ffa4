// A fault of the ring megakernel in one 64-bit word, so that raising it takes a few instructions:
// the code of waits that run out lies between the code that runs (90 copies of a store a field cost
// 25 us a token in instruction fetches, H200).
#pragma once

#include "kernels/fault.h"
#include "kernels/ring/layout.h"

namespace mkbench::ring {

using FaultWord = unsigned long long;  // 0: none

// Fields from the highest bit down; what does not fit is cut.
MKBENCH_HD constexpr FaultWord pack_fault(int raised, int phase, int layer, int block, int position,
                                          unsigned expected, unsigned seen) {
  const unsigned high =
      static_cast<unsigned>(raised) << 30 | (static_cast<unsigned>(phase) & 0xfu) << 26 |
      (static_cast<unsigned>(layer) & 0x7fu) << 19 | (static_cast<unsigned>(block) & 0xffu) << 11;
  const unsigned low = (expected & 0xffu) << 8 | (seen & 0xffu);
  return static_cast<FaultWord>(high) << 32 |
         static_cast<FaultWord>(static_cast<unsigned>(position) & 0x7ffffu) << 16 | low;
}

// The fields of `word` into a status, whose progress stays.
inline void unpack_fault(FaultWord word, KernelStatus& status) {
  const auto bits = [word](int from, int count) {
    return static_cast<int>(word >> from & ((1ull << count) - 1));
  };
  status.raised = bits(62, 2);
  status.phase = bits(58, 4);
  status.layer = bits(51, 7);
  status.block = bits(43, 8);
  status.position = bits(16, 19);
  status.expected = bits(8, 8);
  status.seen = bits(0, 8);
}

}  // namespace mkbench::ring
