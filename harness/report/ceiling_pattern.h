// The patterns in which the ceiling can read memory, and the texts that name them in reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mkbench {

// How one thread of each block issues bulk copies to shared memory (sm_90 and later).
struct BulkPlan {
  uint32_t stages;      // copies in flight, 1 .. kMostStages
  uint32_t copy_bytes;  // a multiple of 16 that divides 16 KiB
  uint32_t gap_ps;      // scheduled picoseconds from one copy to the next; 0: no delay

  static constexpr uint32_t kMostStages = 12;
  static constexpr uint32_t kMostRingBytes = 96 * 1024;  // within every card's limit from sm_90 on
  constexpr uint32_t ring_bytes() const { return stages * copy_bytes; }
  constexpr bool operator==(const BulkPlan&) const = default;
};

struct ReadPattern {
  enum class Way {
    kPlain,  // 16-byte loads by many threads; no plan
    kBulk,   // bulk copies by one thread of each multiprocessor
    kRing    // the ring megakernel without its waits, which copies 16 KiB at a time
  };
  Way way = Way::kPlain;
  BulkPlan plan{0, 0, 0};
  // How a pattern gains from what L2 still holds of the step before; not for kRing.
  bool back_and_forth = false;  // every other step is read from its end to its beginning
  uint32_t kept_mib = 0;        // the first MiB of a step, which L2 is asked to keep

  constexpr bool operator==(const ReadPattern&) const = default;
};

// "3 x 16 KiB in flight, 352.500 ns apart".
std::string pattern_text(const BulkPlan& plan);
// "bulk copies, 3 x 16 KiB in flight, 352.500 ns apart, back and forth, 24 MiB kept in L2".
std::string pattern_text(const ReadPattern& pattern);
// The pattern that the start of `text` names; nullopt if it names none.
std::optional<ReadPattern> read_pattern_text(std::string_view text);

// True if two such texts name patterns that take the same time, so that two runs' ceilings can be
// compared: the same way, number and size of copies, and gaps within half a per cent.
bool alike_patterns(std::string_view a, std::string_view b);

}  // namespace mkbench
