#include "harness/flow/late_ids.h"

#include <sys/random.h>

#include <limits>
#include <utility>

#include "references/base/error.h"

namespace mkbench {

uint64_t random_below(uint64_t bound) {
  // Draws at and above the largest multiple of the bound would make small numbers more likely.
  const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
  for (;;) {
    uint64_t draw = 0;
    if (getrandom(&draw, sizeof draw, 0) != static_cast<ssize_t>(sizeof draw))
      throw Error(ErrorKind::kEnvUnfit, "getrandom(2) gives no random numbers");
    if (draw < limit) return draw % bound;
  }
}

int32_t LateIds::draw() {
  if (left_.empty()) left_ = all_;
  std::swap(left_[random_(left_.size())], left_.back());
  const int32_t id = left_.back();
  left_.pop_back();
  return id;
}

LateIds LateIds::split() {
  if (all_.size() < 2) return *this;
  std::vector<int32_t> half;
  left_ = all_;
  while (half.size() < all_.size() / 2) half.push_back(draw());
  all_ = left_;
  return {std::move(half), random_};
}

}  // namespace mkbench
