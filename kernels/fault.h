// What a kernel tells the host while it runs and when a bounded wait runs out. Lives in host-mapped
// memory.
#pragma once

namespace mkbench {

// What KernelStatus::raised says: a bounded wait has run out, or a value does not fit the format in
// which blocks exchange it.
inline constexpr int kRaisedHang = 1, kRaisedRange = 2;

// Plain ints, so that device and host agree on the layout without any header of either side.
struct KernelStatus {
  int progress_position;  // position of the step that block 0 works on; -1 before the first
  int raised;             // 0, or one of the above; the fields below are complete then
  int block;              // who waited, or held the value
  int phase;              // Phase that it could not start, or that made the value
  int layer;
  int position;
  int expected;  // arrivals or epoch that it waited for, its low bits (plain 32, ring 12)
  int seen;      // and saw last
};

}  // namespace mkbench
