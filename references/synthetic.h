// The analytic checkpoint: full-size weights whose greedy continuation integers can compute.
// Token ids stand for 17-bit states. Planted layer l with a lag of k positions makes
// P_l(t) = P_(l-1)(t) xor P_(l-1)(t - k), the last layer applies one LFSR step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/weights.h"

namespace mkbench {

using Lags = std::map<int, int>;  // layer -> lag in positions

// The lags of a named set: none, short, deep, far, early, late. Throws Error(kBadInput) listing the
// names.
const Lags& synthetic_lags(std::string_view lagset);
// Sum of a set's lags: its closed form holds from this many KV rows on.
int synthetic_min_depth(std::string_view lagset);
// The set that plain `synthetic` takes at `depth` KV rows: the longest of none, short, deep, far
// that fits.
std::string_view synthetic_lagset_for_depth(int depth);

// Gives memory for all tensors of a tied model, one after the other in tensor_table()'s order. It
// becomes the weights' owner.
using WeightMemory = std::function<std::shared_ptr<Bf16[]>(const ModelConfig& config)>;

// Generates all weights of the 0.6B shapes on `threads` threads (0 = all cores), under the name
// "synthetic:<lagset>". `layers` < 28 gives a cut whose last layer shifts: tests of kernels use it,
// and the closed form does not hold for it. Without `memory` the heap holds them.
ModelWeights make_synthetic(std::string_view lagset, int threads = 0,
                            int layers = kQwen3_0_6B.layers, const WeightMemory& memory = {});

// L: one step of the 17-bit LFSR, an invertible linear map. Sign i of a state's codeword is bit 0
// of L^i s.
constexpr uint32_t lfsr_step(uint32_t s) { return s & 1 ? (s >> 1) ^ 0x10004u : s >> 1; }

int32_t synthetic_token(uint32_t state);
// The state of a token id, or -1 for the 20,864 ids without one.
int32_t synthetic_state(int32_t id);
// Prompt of depth + 1 ids: id i is the token of state splitmix64(seed + i) mod 2^17.
std::vector<int32_t> synthetic_prompt(int depth, uint64_t seed);
// The n ids that follow `prompt` (which must hold more than synthetic_min_depth(lagset) ids, all
// with states).
std::vector<int32_t> synthetic_continuation(std::span<const int32_t> prompt,
                                            std::string_view lagset, int n);

uint64_t splitmix64(uint64_t x);

}  // namespace mkbench
