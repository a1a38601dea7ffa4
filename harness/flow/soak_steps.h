// The steps of a soak. The seed and a step's number decide all that it does, so that a soak can
// continue after an interruption, and a single step can be repeated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/stress.h"

namespace mkbench {

// What steps may do with an engine.
struct SoakBounds {
  int context = 0;     // positions of the KV cache; at least kLeastSoakContext
  int least_rows = 0;  // fewest KV rows at which the truth holds
  uint64_t seed = 0;
};
inline constexpr int kLeastSoakContext = 128;

// A prefill, a first launch, launches that repeat it from the same start, and further launches.
struct SoakStep {
  int64_t number = 0;
  int rows = 0;     // KV rows before the first launch
  int tokens = 0;   // in each launch
  int repeats = 0;  // launches that repeat the first one
  int further = 0;  // launches that continue after the last repeat
  bool logits = false;
  bool fills = false;  // the last launch ends at the cache's last position
  bool known = false;  // takes a prompt of a reference, if the model has one
  // Index in soak_edges() of the cache length that the first launch passes; -1: none.
  int edge = -1;
  uint64_t prompt_seed = 0;
  uint64_t ways = 0;  // bit r: repeat r begins with a reset, not a restore; at most 64 repeats
  Stress stress{};
};

// Cache lengths at the edges of tiles, which are the multiples of 16 up to 512 and of 64 beyond,
// and one below and above each edge.
std::vector<int> soak_edges(const SoakBounds& bounds);

SoakStep draw_step(const SoakBounds& bounds, const std::vector<int>& edges, int64_t number);

// The position after the last KV row that a step writes.
inline int last_position(const SoakStep& step) {
  return step.rows + step.tokens * (1 + step.further);
}

// "a prefill of 63 rows, launches of 5 tokens, counters from 4294967200"
std::string step_text(const SoakStep& step);

}  // namespace mkbench
