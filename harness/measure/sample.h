// One timed sample (an engine's share of one block) and the checks that make it valid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/engine.h"
#include "references/qwen3.h"

namespace mkbench {

struct Sample {
  std::string engine;
  int block = 0;
  int order = 0;  // place inside the block
  int tokens = 0;
  double start_ms = 0;  // of the decode, host clock, since the case began; 0 where not taken
  DecodeTimes times;
  std::vector<int32_t> ids;  // the receipt; compared after the clock has stopped
  int receipts_checked = 0, receipts_wrong = 0;
  int repeats = 0;  // runs before this one that were dropped because their clocks disagreed
  bool valid = false;
  std::string invalid_reason;  // "clocks disagree: host 12.1 ms, events 10.0 ms", "receipt: token
                               // 17 is 5, wanted 9"
  double ms_per_token() const { return tokens > 0 ? times.host_ms / tokens : 0; }
};

// Host, event and device clocks must agree within 1 % + 20 us (clocks that an engine lacks are 0
// and left out). Returns the reason for disagreement, or an empty string.
std::string clock_disagreement(const DecodeTimes& times);

// Share of the roofline that a sample set reached: bytes per token at the mean context depth + (n -
// 1) / 2, over the measured ceiling.
struct RooflineShare {
  double bytes_per_token = 0;
  double ceiling_gb_per_s = 0;  // measured in the same run
  double floor_ms = 0;          // bytes / ceiling
  double fraction = 0;          // floor / median ms per token
  bool applies = false;
  std::string reason;  // why not, when it does not apply ("weights and KV are under 4 x L2")
};

// Bytes per token and floor of n decode steps from `depth` KV rows on, over a measured ceiling; the
// fraction stays 0 until a median is known. Does not apply without a GPU, without a ceiling, or
// where weights and KV are under 4 x L2.
RooflineShare roofline_share(const ModelShape& shape, int depth, int n, bool gpu,
                             double ceiling_gb_per_s, int64_t l2_bytes);

}  // namespace mkbench
