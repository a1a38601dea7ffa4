// Late ids: a timed prompt's last id, drawn once the engine holds the rows before it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace mkbench {

// A number below `bound` (at least 1) from getrandom(2): no engine can foresee it.
uint64_t random_below(uint64_t bound);

// Hands out the ids of a pool in random order. No id repeats before all have been drawn.
class LateIds {
 public:
  LateIds(std::vector<int32_t> pool, std::function<uint64_t(uint64_t bound)> random)
      : all_(std::move(pool)), random_(std::move(random)) {}
  int32_t draw();
  // Removes a random half of the pool and returns it, so that an engine that remembers the ids of
  // one half gains nothing in the other. If the pool has a single id, both get it.
  LateIds split();

 private:
  std::vector<int32_t> all_;
  std::vector<int32_t> left_;
  const std::function<uint64_t(uint64_t bound)> random_;
};

}  // namespace mkbench
