// Where blocks have given up waiting, in host-mapped memory: each block that leaves a wait without what it
// waited for writes its own record, so no code that waits with success takes time for it. A block without a
// record was not waiting.
#pragma once

namespace mkbench {

inline constexpr int kMostRecords = 1024;  // blocks of a larger grid have none

// Plain ints, so that device and host code agree on the layout without a header of either.
struct BlockRecord {
  int gave_up;  // 1: the fields below are complete
  int position;
  int expected;  // low 32 bits of the arrivals that it waited for
};

struct BlockRecords {
  BlockRecord blocks[kMostRecords];
};

}  // namespace mkbench
