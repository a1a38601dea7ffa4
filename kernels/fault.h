// What a kernel tells the host while it runs and when a bounded wait runs out. Lives in host-mapped
// memory.
#pragma once

namespace mkbench {

// Plain ints, so that device and host agree on the layout without any header of either side.
struct KernelStatus {
  int progress_position;  // position of the step that block 0 works on; -1 before the first
  int raised;             // 1 once a wait has run out; the fields below are complete then
  int block;              // who waited
  int phase;              // Phase that it could not start
  int layer;
  int position;
  int expected;  // arrivals it waited for (low 32 bits)
  int seen;      // arrivals it saw last
};

}  // namespace mkbench
