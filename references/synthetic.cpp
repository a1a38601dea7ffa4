#include "references/synthetic.h"

#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr int64_t kVocab = kQwen3_0_6B.vocab;
constexpr int64_t kStates = 1 << 17;

// Token id of state s = (s * kMultiplier + kOffset) mod vocab, which spreads states over the whole
// vocabulary: every block of the LM head has winners.
constexpr int64_t kMultiplier = 100003, kOffset = 777;

constexpr int64_t inverse_multiplier() {
  int64_t r0 = kVocab, r1 = kMultiplier, t0 = 0, t1 = 1;
  while (r1 != 0) {
    const int64_t q = r0 / r1, r2 = r0 - q * r1, t2 = t0 - q * t1;
    r0 = r1, r1 = r2, t0 = t1, t1 = t2;
  }
  return (t0 % kVocab + kVocab) % kVocab;
}
static_assert(kMultiplier * inverse_multiplier() % kVocab == 1);

const std::map<std::string, Lags, std::less<>>& all_lags() {
  static const std::map<std::string, Lags, std::less<>> sets = {
      {"none", {}},
      {"short", {{4, 1}, {12, 3}, {20, 7}}},
      {"deep", {{4, 1}, {12, 257}, {20, 1500}}},
      {"far", {{4, 1}, {12, 4000}, {20, 26000}}},
      {"early", {{1, 2}, {8, 5}, {16, 3}}},
      {"late", {{6, 4}, {15, 1}, {25, 6}}},
  };
  return sets;
}

}  // namespace

uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

const Lags& synthetic_lags(std::string_view lagset) {
  const auto found = all_lags().find(lagset);
  if (found != all_lags().end()) return found->second;
  throw Error(ErrorKind::kBadInput,
              "synthetic: lag set \"" + std::string(lagset) +
                  "\" is unknown, wanted none, short, deep, far, early or late");
}

int synthetic_min_depth(std::string_view lagset) {
  int sum = 0;
  for (const auto& [layer, lag] : synthetic_lags(lagset)) sum += lag;
  return sum;
}

std::string_view synthetic_lagset_for_depth(int depth) {
  for (std::string_view set : {"far", "deep", "short"}) {
    if (depth >= synthetic_min_depth(set)) return set;
  }
  return "none";
}

int32_t synthetic_token(uint32_t state) {
  return static_cast<int32_t>((int64_t{state} * kMultiplier + kOffset) % kVocab);
}

int32_t synthetic_state(int32_t id) {
  constexpr int64_t kInverse = inverse_multiplier();
  const int64_t shifted = (int64_t{id} - kOffset % kVocab + kVocab) % kVocab;
  const int64_t state = shifted * kInverse % kVocab;
  return id >= 0 && id < kVocab && state < kStates ? static_cast<int32_t>(state) : -1;
}

std::vector<int32_t> synthetic_prompt(int depth, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i <= depth; ++i) {
    const uint64_t draw = splitmix64(seed + static_cast<uint64_t>(i));
    ids.push_back(synthetic_token(static_cast<uint32_t>(draw % kStates)));
  }
  return ids;
}

std::vector<int32_t> synthetic_continuation(std::span<const int32_t> prompt,
                                            std::string_view lagset, int n) {
  const Lags& lags = synthetic_lags(lagset);
  const size_t needed = static_cast<size_t>(synthetic_min_depth(lagset)) + 1;
  if (prompt.size() < needed) {
    throw Error(ErrorKind::kBadInput, "synthetic:" + std::string(lagset) + ": prompt has " +
                                          std::to_string(prompt.size()) + " ids, wanted at least " +
                                          std::to_string(needed));
  }
  // p[0] holds the states, p[k] the outputs of the k-th planted layer. An entry whose history would
  // start before the prompt has no meaning, and no such entry reaches p.back() from position
  // `needed` - 1 on.
  std::vector<std::vector<uint32_t>> p(lags.size() + 1);
  const auto append = [&](uint32_t state) {
    p[0].push_back(state);
    size_t k = 0;
    for (const auto& [layer, lag] : lags) {
      const size_t t = p[0].size() - 1, back = static_cast<size_t>(lag);
      p[k + 1].push_back(t < back ? 0 : p[k][t] ^ p[k][t - back]);
      ++k;
    }
  };
  for (size_t i = 0; i < prompt.size(); ++i) {
    const int32_t state = synthetic_state(prompt[i]);
    if (state < 0) {
      throw Error(ErrorKind::kBadInput, "synthetic: prompt id " + std::to_string(prompt[i]) +
                                            " at index " + std::to_string(i) + " has no state");
    }
    append(static_cast<uint32_t>(state));
  }
  std::vector<int32_t> out;
  for (int i = 0; i < n; ++i) {
    const uint32_t state = lfsr_step(p.back().back());
    out.push_back(synthetic_token(state));
    append(state);
  }
  return out;
}

}  // namespace mkbench
