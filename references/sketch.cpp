#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <numeric>

#include "references/base/error.h"
#include "references/greedy_reference.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// Bit p of word `id` is set where the sign of projection p is -1.
using SignWords = std::vector<uint64_t>;

SignWords make_sign_words(uint64_t seed, int vocab, int projections) {
  SignWords words(static_cast<size_t>(vocab), 0);
  for (int id = 0; id < vocab; ++id) {
    for (int p = 0; p < projections; ++p) {
      const uint64_t negative = sketch_sign(seed, p, id) < 0 ? 1 : 0;
      words[static_cast<size_t>(id)] |= negative << p;
    }
  }
  return words;
}

// The words of the last (seed, vocab, projections). One entry is enough: references are judged one
// after the other.
std::shared_ptr<const SignWords> sign_words(uint64_t seed, int vocab, int projections) {
  struct Cache {
    uint64_t seed = 0;
    int vocab = -1, projections = -1;
    std::shared_ptr<const SignWords> words;
  };
  static std::mutex mutex;
  static Cache cache;
  const std::lock_guard<std::mutex> lock(mutex);
  if (cache.seed != seed || cache.vocab != vocab || cache.projections != projections) {
    auto words = std::make_shared<const SignWords>(make_sign_words(seed, vocab, projections));
    cache = {seed, vocab, projections, std::move(words)};
  }
  return cache.words;
}

}  // namespace

float sketch_sign(uint64_t seed, int projection, int32_t id) {
  const uint64_t key = seed ^ (static_cast<uint64_t>(projection) << 32) ^ static_cast<uint64_t>(id);
  return splitmix64(key) & 1 ? -1.0f : 1.0f;
}

std::vector<float> sketch_of(const float* logits, int vocab, uint64_t seed, int projections) {
  if (projections < 1 || projections > kMaxProjections) {
    throw Error(ErrorKind::kRuntime, fmt::format("sketch: projections is {}, wanted 1 to {}",
                                                 projections, kMaxProjections));
  }
  const auto words = sign_words(seed, vocab, projections);
  const double mean = std::accumulate(logits, logits + vocab, 0.0) / vocab;
  double sums[kMaxProjections] = {};
  for (int id = 0; id < vocab; ++id) {
    const double centred = logits[id] - mean;
    const double signed_pair[2] = {centred, -centred};
    const uint64_t word = (*words)[static_cast<size_t>(id)];
    for (int p = 0; p < projections; ++p) sums[p] += signed_pair[(word >> p) & 1];
  }
  std::vector<float> out;
  for (int p = 0; p < projections; ++p) out.push_back(static_cast<float>(sums[p]));
  return out;
}

}  // namespace mkbench
