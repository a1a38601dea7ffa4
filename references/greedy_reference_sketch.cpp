#include <fmt/format.h>

#include <array>
#include <memory>
#include <mutex>
#include <numeric>

#include "references/base/error.h"
#include "references/greedy_reference.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// Ids are taken in groups: 2^kGroup signed sums of a group are made once, and each projection adds
// one of them. Groups of eight ids would not pay: 256 sums a group for only 512 projections.
constexpr int kGroup = 4;

// [groups][projections]: bit i is set where the sign of id kGroup * group + i is -1.
using SignGroups = std::vector<uint8_t>;

int group_count(int vocab) { return (vocab + kGroup - 1) / kGroup; }

SignGroups make_sign_groups(uint64_t seed, int vocab, int projections) {
  const auto width = static_cast<size_t>(projections);
  SignGroups groups(static_cast<size_t>(group_count(vocab)) * width, 0);
  for (int id = 0; id < vocab; ++id) {
    uint8_t* row = groups.data() + static_cast<size_t>(id / kGroup) * width;
    for (int p = 0; p < projections; ++p) {
      if (sketch_sign(seed, p, id) < 0) row[p] = static_cast<uint8_t>(row[p] | 1u << id % kGroup);
    }
  }
  return groups;
}

// The groups of the last (seed, vocab, projections). One entry is enough: references are judged one
// after the other.
std::shared_ptr<const SignGroups> sign_groups(uint64_t seed, int vocab, int projections) {
  struct Cache {
    uint64_t seed = 0;
    int vocab = -1, projections = -1;
    std::shared_ptr<const SignGroups> groups;
  };
  static std::mutex mutex;
  static Cache cache;
  const std::lock_guard<std::mutex> lock(mutex);
  if (cache.seed != seed || cache.vocab != vocab || cache.projections != projections) {
    auto groups = std::make_shared<const SignGroups>(make_sign_groups(seed, vocab, projections));
    cache = {seed, vocab, projections, std::move(groups)};
  }
  return cache.groups;
}

using GroupSums = std::array<double, 1 << kGroup>;

// Entry s: the sum of all values, values[i] taken as negative where bit i of s is set.
GroupSums sums_of(const std::array<double, kGroup>& values) {
  GroupSums sums;
  sums[0] = std::accumulate(values.begin(), values.end(), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t bit = size_t{1} << i;
    for (size_t s = 0; s < bit; ++s) sums[bit + s] = sums[s] - 2 * values[i];
  }
  return sums;
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
  const auto groups = sign_groups(seed, vocab, projections);
  const double mean = std::accumulate(logits, logits + vocab, 0.0) / vocab;
  std::vector<double> total(static_cast<size_t>(projections), 0.0);
  for (int group = 0; group < group_count(vocab); ++group) {
    std::array<double, kGroup> centred{};
    for (int i = 0; i < kGroup && kGroup * group + i < vocab; ++i)
      centred[static_cast<size_t>(i)] = logits[kGroup * group + i] - mean;
    const GroupSums sums = sums_of(centred);
    const uint8_t* row = groups->data() + static_cast<size_t>(group) * total.size();
    for (size_t p = 0; p < total.size(); ++p) total[p] += sums[row[p]];
  }
  return {total.begin(), total.end()};
}

}  // namespace mkbench
