// The lag sets of the tabulated depths: an engine that misses far rows decodes wrong ids.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "references/synthetic.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

int longest_lag(std::string_view set) {
  int longest = 0;
  for (const auto& [layer, lag] : synthetic_lags(set)) longest = std::max(longest, lag);
  return longest;
}

// The id that follows `ids` where only the newest `window` rows are read: the share of a planted
// layer whose row lies further back is missing.
int32_t next_id(const std::vector<int32_t>& ids, std::string_view set, int window) {
  std::vector<size_t> rows = {ids.size() - 1};
  for (const auto& [layer, lag] : synthetic_lags(set)) {
    if (lag >= window) continue;
    for (size_t i = 0, count = rows.size(); i < count; ++i)
      rows.push_back(rows[i] - static_cast<size_t>(lag));
  }
  uint32_t state = 0;
  for (const size_t row : rows) state ^= static_cast<uint32_t>(synthetic_state(ids[row]));
  return synthetic_token(lfsr_step(state));
}

// How many of 64 right ids an engine with that window gives, each after right ids.
int right_ids(int depth, std::string_view set, int window) {
  std::vector<int32_t> ids = synthetic_prompt(depth, 5);
  int right = 0;
  for (const int32_t id : synthetic_continuation(ids, set, 64)) {
    right += next_id(ids, set, window) == id;
    ids.push_back(id);
  }
  return right;
}

}  // namespace

TEST_CASE("at each tabulated depth, ids depend on a row at least 80 % of the depth back") {
  for (const int depth : {512, 1024, 1536, 2048, 4096, 8192, 16384, 32704}) {
    INFO(depth);
    const std::string_view set = synthetic_lagset_for_depth(depth);
    const int lag = longest_lag(set);
    CHECK(lag >= 0.8 * depth);
    CHECK(right_ids(depth, set, lag + 1) == 64);
    CHECK(right_ids(depth, set, lag) == 0);
    CHECK((right_ids(depth, set, 1024) == 0) == (depth >= 1536));
  }
}
