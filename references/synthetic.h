// The analytic checkpoint: full-size weights for every shape that has room; integers alone give the
// greedy ids. A token id stands for a state of up to 17 bits; P_l(t) is the state at position t
// after layer l. A planted layer with a lag of k gives P_l(t) = P_(l-1)(t) xor P_(l-1)(t - k), any
// other layer keeps the state, and the last one adds one LFSR step: the state of the next id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/model/published.h"
#include "references/model/weights.h"

namespace mkbench {

using Lags = std::map<int, int>;  // layer -> lag in positions

// Equal weights of a shape, a lag set and a salt on every machine and in every build of this
// version. Raise it with every change of the bytes, that is of references/data/synthetic/hashes.json.
inline constexpr int kSyntheticVersion = 1;

// A salt over 0 gives weights of the same design with another map from states to token ids and other
// noise, so that nobody knows their answers before it is drawn. References are made from salt 0.
// Every JSON reader keeps integers below this bound exactly.
inline constexpr uint64_t kSaltBound = uint64_t{1} << 53;

// The names of all lag sets, by synthetic_min_depth().
std::vector<std::string_view> synthetic_lagsets();
// The lags of a named set in a model of `layers` layers. Planted layers keep their relative depth,
// stay apart and below the last layer. Throws Error(kBadInput) for an unknown name, listing the
// names, and for too few layers.
Lags synthetic_lags(std::string_view lagset, int layers = kQwen3_0_6B.layers);
// Sum of a set's lags: its closed form holds from this many KV rows on.
int synthetic_min_depth(std::string_view lagset);
// The set that a model whose name has no lag set takes at `depth` KV rows: the longest that fits,
// but for early and late.
std::string_view synthetic_lagset_for_depth(int depth);

// "synthetic", "synthetic:short", "synthetic:qwen3-4b", "synthetic:qwen3-4b:short": the name after
// --model. For the first published model the shape's name is omitted.
std::string synthetic_name(const ShapeRow& row, std::string_view lagset = "");
// The config of an analytic model.
ModelConfig synthetic_config(const ShapeRow& row);

// Why `row` has no analytic weights: the field that leaves no room for them; empty: it has them.
std::string synthetic_obstacle(const ShapeRow& row);
// The published models that have analytic weights.
std::span<const ShapeRow> analytic_models();

// Allocates memory for all tensors of a model, in tensor_table()'s order and without gaps or a tied
// head. The result becomes the weights' owner.
using WeightMemory = std::function<std::shared_ptr<Bf16[]>(const ModelConfig& config)>;

// Generates all weights of `row` on `threads` threads (0 = all cores), in `memory` or else on the
// heap. If `row` has another number of layers than its model, the planted layers move, and the
// closed form holds. Throws Error(kBadInput) naming the field if the shape has no room for the
// codewords, and Error(kEnvUnfit), before it allocates, if memory does not suffice.
ModelWeights make_synthetic(const ShapeRow& row, std::string_view lagset, int threads = 0,
                            const WeightMemory& memory = {}, uint64_t salt = 0);

// The first `layers` layers of the 0.6B, the last of which makes the LFSR step, for tests of
// kernels. The closed form does not hold if a planted layer is missing.
ModelWeights make_synthetic(std::string_view lagset, int threads = 0,
                            int layers = kQwen3_0_6B.layers, const WeightMemory& memory = {});

// Throws Error(kEnvUnfit) if `row` does not fit into memory, with the bytes needed, the bytes that
// are free (free_memory()) and the largest of analytic_models() that fits.
void check_synthetic_memory(const ShapeRow& row, const std::filesystem::path& root = "/");

// How the ids of a vocabulary stand for states: bits (as many as the vocabulary has room for, up to
// 17), the LFSR, and the affine map that spreads states over all ids. With a salt, a random affine map
// among the states comes before that one, whose offset is random then.
class StateCode {
 public:
  // Throws Error(kBadInput) for a vocabulary whose number of bits has no LFSR here.
  explicit StateCode(int vocab, uint64_t salt = 0);

  uint32_t states() const { return uint32_t{1} << bits_; }
  bool small() const;  // the vocabulary has no room for 16 bits
  // L: one step of the LFSR, an invertible linear map. Sign i of a state's codeword is bit 0 of
  // L^i s.
  uint32_t step(uint32_t s) const { return s & 1 ? (s >> 1) ^ taps_ : s >> 1; }
  int32_t token(uint32_t state) const;
  // The state of a token id, or -1 for an id without one.
  int32_t state(int32_t id) const;

 private:
  int64_t vocab_, inverse_, offset_;
  int bits_;
  uint32_t taps_;
  uint32_t factor_ = 1, unfactor_ = 1, shift_ = 0;  // of the map among the states; modulo states()
};

// The code of the 0.6B's vocabulary, in which 20,864 ids have no state.
uint32_t lfsr_step(uint32_t s);
int32_t synthetic_token(uint32_t state);
int32_t synthetic_state(int32_t id);

// depth + 1 ids: id i is the token of state splitmix64(seed + i) mod the number of states.
std::vector<int32_t> synthetic_prompt(int depth, uint64_t seed, int vocab = kQwen3_0_6B.vocab,
                                      uint64_t salt = 0);
// The n ids after `prompt`, which needs more than synthetic_min_depth(lagset) ids, all with states.
std::vector<int32_t> synthetic_continuation(std::span<const int32_t> prompt,
                                            std::string_view lagset, int n,
                                            int vocab = kQwen3_0_6B.vocab, uint64_t salt = 0);

uint64_t splitmix64(uint64_t x);

}  // namespace mkbench
