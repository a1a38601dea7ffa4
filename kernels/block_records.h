// Records of failed waits, in host-mapped memory. A block whose wait fails writes its own record when it
// leaves the launch, so that successful waits cost nothing extra. A block without a record was not waiting.
#pragma once

namespace mkbench {

inline constexpr int kMostRecords = 1024;  // blocks with this or a higher number write no record

// Plain ints: host and device code agree on their layout, and no CUDA header is needed.
struct BlockRecord {
  int gave_up;  // 1: the fields below are complete
  int position;
  int expected;  // low 32 bits of the arrivals that it waited for
};

struct BlockRecords {
  BlockRecord blocks[kMostRecords];
};

}  // namespace mkbench
