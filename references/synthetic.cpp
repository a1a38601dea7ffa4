#include "references/synthetic.h"

#include <algorithm>
#include <bit>
#include <string>

#include "references/base/error.h"

namespace mkbench {
namespace {

// Token id of state s = (s * kMultiplier + offset) mod vocab. The prime multiplier spreads states
// over the whole vocabulary, so the largest logit may lie in any CUDA block's rows of the LM head.
constexpr int64_t kMultiplier = 100003, kOffset = 777;
constexpr int kMostBits = 17;

// Feedback of an LFSR that runs through every state but 0. No two of its codewords of 480 signs agree
// in more than 266, 276 and 322 of them.
constexpr struct {
  int bits;
  uint32_t taps;
} kRegisters[] = {{11, 0x500}, {16, 0xD008}, {17, 0x10004}};

// The inverse of an odd number modulo 2^32, by Newton's iteration: each step doubles the right bits,
// of which an odd number is three of its own inverse.
uint32_t inverse_of_odd(uint32_t odd) {
  uint32_t inverse = odd;
  for (int bits = 3; bits < 32; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

int64_t inverse_multiplier(int64_t vocab) {
  int64_t r0 = vocab, r1 = kMultiplier % vocab, t0 = 0, t1 = 1;
  while (r1 != 0) {
    const int64_t q = r0 / r1, r2 = r0 - q * r1, t2 = t0 - q * t1;
    r0 = r1, r1 = r2, t0 = t1, t1 = t2;
  }
  return (t0 % vocab + vocab) % vocab;
}

const StateCode& default_code() {
  static const StateCode code(kQwen3_0_6B.vocab);
  return code;
}

// All lag sets by name; their layer numbers are for the 0.6B's 28 layers. The longest lag of "dN" is
// 7/8 of N, and its closed form holds from fewer than N rows on: at N rows a token depends on one that
// far back, so an engine that drops rows or attends to a window decodes wrong tokens.
const std::map<std::string, Lags, std::less<>>& all_lags() {
  static const std::map<std::string, Lags, std::less<>> sets = {
      {"none", {}},
      {"short", {{4, 1}, {12, 3}, {20, 7}}},
      {"deep", {{4, 1}, {12, 257}, {20, 1500}}},
      {"far", {{4, 1}, {12, 4000}, {20, 26000}}},
      {"early", {{1, 2}, {8, 5}, {16, 3}}},
      {"late", {{6, 4}, {15, 1}, {25, 6}}},
      {"d512", {{4, 1}, {12, 56}, {20, 448}}},
      {"d1024", {{4, 1}, {12, 113}, {20, 896}}},
      {"d1536", {{4, 1}, {12, 170}, {20, 1344}}},
      {"d2048", {{4, 1}, {12, 227}, {20, 1792}}},
      {"d4096", {{4, 1}, {12, 455}, {20, 3584}}},
      {"d8192", {{4, 1}, {12, 910}, {20, 7168}}},
      {"d16384", {{4, 1}, {12, 1820}, {20, 14336}}},
      {"d32704", {{4, 1}, {12, 3633}, {20, 28616}}},
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

std::vector<std::string_view> synthetic_lagsets() {
  std::vector<std::string_view> names;
  for (const auto& [set, lags] : all_lags()) names.push_back(set);
  std::stable_sort(names.begin(), names.end(), [](std::string_view a, std::string_view b) {
    return synthetic_min_depth(a) < synthetic_min_depth(b);
  });
  return names;
}

Lags synthetic_lags(std::string_view lagset, int layers) {
  const auto found = all_lags().find(lagset);
  if (found == all_lags().end()) {
    std::string known;
    for (const std::string_view name : synthetic_lagsets())
      known += (known.empty() ? "" : ", ") + std::string(name);
    throw Error(ErrorKind::kBadInput, "synthetic: lag set \"" + std::string(lagset) +
                                          "\" is unknown, wanted one of " + known);
  }
  const int count = static_cast<int>(found->second.size());
  if (layers <= count) {
    throw Error(ErrorKind::kBadInput, "synthetic:" + std::string(lagset) + ": " +
                                          std::to_string(layers) + " layers, wanted over " +
                                          std::to_string(count));
  }
  Lags lags;
  int least = 0, most = layers - 1 - count;
  for (const auto& [layer, lag] : found->second) {
    const int scaled = layer * (layers - 1) / (kQwen3_0_6B.layers - 1);
    const int planted = std::clamp(scaled, least, most);
    lags[planted] = lag;
    least = planted + 1, ++most;
  }
  return lags;
}

std::string synthetic_name(const ShapeRow& row, std::string_view lagset) {
  std::string name = "synthetic";
  if (std::string_view(row.name) != kShapeTable[0].name) name += ":" + std::string(row.name);
  return lagset.empty() ? name : name + ":" + std::string(lagset);
}

int synthetic_min_depth(std::string_view lagset) {
  int sum = 0;
  for (const auto& [layer, lag] : synthetic_lags(lagset)) sum += lag;
  return sum;
}

std::string_view synthetic_lagset_for_depth(int depth) {
  std::string_view longest = "none";
  for (const auto& [set, lags] : all_lags()) {
    if (set == "early" || set == "late") continue;
    const int from = synthetic_min_depth(set);
    if (depth >= from && from > synthetic_min_depth(longest)) longest = set;
  }
  return longest;
}

StateCode::StateCode(int vocab, uint64_t salt)
    : vocab_(vocab),
      inverse_(vocab > 0 ? inverse_multiplier(vocab) : 0),
      offset_(kOffset),
      bits_(0),
      taps_(0) {
  const int room = static_cast<int>(std::bit_width(static_cast<uint32_t>(std::max(vocab, 1)))) - 1;
  bits_ = std::min(kMostBits, room);
  for (const auto& one : kRegisters) {
    if (one.bits == bits_) taps_ = one.taps;
  }
  if (salt != 0) {
    const uint64_t of_states = splitmix64(salt), of_ids = splitmix64(of_states);
    factor_ = static_cast<uint32_t>(of_states) | 1;
    unfactor_ = inverse_of_odd(factor_);
    shift_ = static_cast<uint32_t>(of_states >> 32);
    offset_ = static_cast<int64_t>(of_ids % static_cast<uint64_t>(std::max(vocab, 1)));
  }
  if (taps_ != 0 && kMultiplier * inverse_ % vocab_ == 1) return;
  throw Error(ErrorKind::kBadInput, "synthetic: vocab is " + std::to_string(vocab) +
                                        ", wanted 2,048 to 4,095 or at least 65,536, and no "
                                        "multiple of " +
                                        std::to_string(kMultiplier));
}

bool StateCode::small() const { return bits_ < 16; }

int32_t StateCode::token(uint32_t state) const {
  const uint32_t mixed = (state * factor_ + shift_) & (states() - 1);
  return static_cast<int32_t>((int64_t{mixed} * kMultiplier + offset_) % vocab_);
}

int32_t StateCode::state(int32_t id) const {
  const int64_t shifted = (int64_t{id} - offset_ % vocab_ + vocab_) % vocab_;
  const int64_t mixed = shifted * inverse_ % vocab_;
  if (id < 0 || id >= vocab_ || mixed >= states()) return -1;
  return static_cast<int32_t>((static_cast<uint32_t>(mixed) - shift_) * unfactor_ & (states() - 1));
}

uint32_t lfsr_step(uint32_t s) { return default_code().step(s); }
int32_t synthetic_token(uint32_t state) { return default_code().token(state); }
int32_t synthetic_state(int32_t id) { return default_code().state(id); }

std::vector<int32_t> synthetic_prompt(int depth, uint64_t seed, int vocab, uint64_t salt) {
  const StateCode code(vocab, salt);
  std::vector<int32_t> ids;
  for (int i = 0; i <= depth; ++i) {
    const uint64_t draw = splitmix64(seed + static_cast<uint64_t>(i));
    ids.push_back(code.token(static_cast<uint32_t>(draw % code.states())));
  }
  return ids;
}

std::vector<int32_t> synthetic_continuation(std::span<const int32_t> prompt,
                                            std::string_view lagset, int n, int vocab,
                                            uint64_t salt) {
  const StateCode code(vocab, salt);
  const Lags lags = synthetic_lags(lagset);
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
    const int32_t state = code.state(prompt[i]);
    if (state < 0) {
      throw Error(ErrorKind::kBadInput, "synthetic: prompt id " + std::to_string(prompt[i]) +
                                            " at index " + std::to_string(i) + " has no state");
    }
    append(static_cast<uint32_t>(state));
  }
  std::vector<int32_t> out;
  for (int i = 0; i < n; ++i) {
    const uint32_t state = code.step(p.back().back());
    out.push_back(code.token(state));
    append(state);
  }
  return out;
}

}  // namespace mkbench
