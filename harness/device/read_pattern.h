// The patterns in which the ceiling can read memory, and the search for the quickest one. Knows no
// CUDA: the caller times.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// How one thread of each block issues bulk copies to shared memory (sm_90 and later).
struct BulkPlan {
  uint32_t stages;      // copies in flight, 1 .. kMostStages
  uint32_t copy_bytes;  // a multiple of 16 that divides 16 KiB
  uint32_t gap_ps;      // picoseconds from one copy to the next, by a schedule; 0 = at once

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

  constexpr bool operator==(const ReadPattern&) const = default;
};

// "3 x 16 KiB in flight, 352.500 ns apart".
std::string pattern_text(const BulkPlan& plan);
// "bulk copies, 3 x 16 KiB in flight, 352.500 ns apart".
std::string pattern_text(const ReadPattern& pattern);
// The pattern whose text `text` begins with; empty where there is none.
std::optional<ReadPattern> read_pattern_text(std::string_view text);

// Whether two such texts name patterns that take the same time, so that two runs' ceilings can be
// compared: one way, as many and as large copies, and gaps that differ by half a per cent at most.
bool alike_patterns(std::string_view a, std::string_view b);

// What a card can do.
struct PatternSpace {
  bool bulk = false;
  uint32_t most_ring_copies = 0;  // in flight; 0: the ring cannot run
  uint32_t bulk_blocks = 0, ring_blocks = 0;
  uint64_t step_bytes = 0;  // that a step reads
};

// Milliseconds of so many steps in a pattern.
using TimePattern = std::function<double(const ReadPattern&, int steps)>;

struct FoundPattern {
  ReadPattern pattern;
  double ms_per_step = 0;  // of the search's own samples; the quickest of many, and so too short
  int tried = 0;           // patterns
};

// First every number of copies in flight without gaps, then gaps for the best of them, then twice
// their neighbours; the best of all are timed in turns by samples of kLongSampleMs and more. A pattern for
// which `time` throws Error is left out. Throws the last such error where none is left.
FoundPattern find_pattern(const PatternSpace& space, const TimePattern& time);

// The shortest sample that counts as one, and the steps that make it.
inline constexpr double kLongSampleMs = 20;
int steps_for(double ms, double ms_per_step);

}  // namespace mkbench
