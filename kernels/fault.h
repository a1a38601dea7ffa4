// A kernel's report to the host, in host-mapped memory: its progress while it runs, and the fault
// that it raises, if any.
#pragma once

namespace mkbench {

// Values of KernelStatus::raised. kRaisedHang: the bound of a wait has expired. kRaisedRange: a value
// does not fit the number format of the exchange.
inline constexpr int kRaisedHang = 1, kRaisedRange = 2;

// Plain ints: host and device code agree on their layout, and no CUDA header is needed.
struct KernelStatus {
  int progress_position;  // position of the step that block 0 works on; -1 before the first
  int raised;             // 0, or one of the values above; the fields below are then complete
  int block;              // the block that waited, or that held the value
  int phase;              // the Phase that it could not start, or that computed the value
  int layer;
  int position;
  int expected;  // low bits of the arrivals or epoch that it waited for (plain 32 bits, ring 12)
  int seen;      // low bits of what it saw last
};

}  // namespace mkbench
