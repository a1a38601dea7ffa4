// A decoder of 64 tokens whose logits are a hash of the context: quick and exactly repeatable, with
// decided steps and near ties where a test needs them, and with a switch for each way in which an
// engine can be wrong.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "references/base/bf16.h"
#include "references/base/error.h"
#include "references/engine.h"
#include "references/synthetic.h"

namespace mkbench::testing {

inline constexpr int kFakeVocab = 64;

// Uniform in [-1, 1) from a hash.
inline double unit(uint64_t key) {
  return static_cast<double>(splitmix64(key) >> 11) * 0x1p-52 - 1;
}

// The step at which an override is called: its number since the prompt, KV rows before it, the
// prompt.
struct At {
  int step;
  int position;
  int32_t first_id;  // the prompt's first id
  bool with_logits;
  int run = 0;  // prompts that the engine has started, this one included
};

struct FakeBehaviour {
  uint64_t noise_seed = 0;
  double noise = 0;           // amplitude of the error on every logit
  bool round_logits = false;  // logits are rounded to bf16
  // Added to the second logit of a near tie: flips the tie when larger than the gap.
  std::optional<double> tie_error = {};
  // Overrides, called on the final logits and the chosen id.
  std::function<void(const At&, std::vector<float>& logits, int32_t& id)> at_step = {};
  bool unwritten_logits = false;  // the last row of a decode is never written
  bool ignores_pending = false;   // set_pending() does nothing
  bool keeps_context = false;     // reset() does not empty the sequence
  bool stuck_counter = false;     // launches are not counted, as if another engine answered
  int launches_per_decode = 1;
  int missing_ids = 0;  // ids that decode() does not return
  bool has_logits = true;
  bool takes_forced = true, takes_snapshots = true, counts_launches = true, deterministic = true;
  bool modified_prefix = false;         // restore() finds other rows than save() did
  std::optional<int> rewinds_off = {};  // rewind() is offered, and goes so many rows too far
  // Hidden states by the context so far; layers and positions are made up.
  std::function<std::vector<float>(const std::vector<int32_t>& context, int layer)> hidden = {};
  std::function<std::vector<float>(const std::vector<int32_t>& context, int layer, int row)>
      kv_row = {};
};

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(FakeBehaviour behaviour = {}) : behaviour_(std::move(behaviour)) {}

  // Prompts that start with 0 have decided steps only; other prompts meet a near tie at about every
  // fourth context.
  static std::vector<float> true_logits(const std::vector<int32_t>& context) {
    uint64_t hash = 7;
    for (const int32_t id : context) hash = splitmix64(hash ^ static_cast<uint64_t>(id));
    std::vector<float> z(kFakeVocab);
    for (int i = 0; i < kFakeVocab; ++i)
      z[static_cast<size_t>(i)] = static_cast<float>(unit(hash + 1000 + static_cast<uint64_t>(i)));
    const size_t first = hash % kFakeVocab, second = (first + 17) % kFakeVocab;
    z[first] = 6;
    if (context.front() != 0 && (hash >> 20) % 4 == 0) z[second] = 6 - kTieGap;
    return z;
  }
  static constexpr float kTieGap = 0.015625F;  // 2^-6: exact in fp32, under a bf16 step (2^-5) at 6

  EngineCapabilities capabilities() const override {
    return {.name = "fake",
            .device = "cpu",
            .max_context = 4096,
            .logits = behaviour_.has_logits,
            .one_launch = true,
            .forced = behaviour_.takes_forced,
            .snapshots = behaviour_.takes_snapshots,
            .counted = behaviour_.counts_launches,
            .rewind = behaviour_.rewinds_off.has_value(),
            .deterministic = behaviour_.deterministic};
  }
  void reset() override {
    if (!behaviour_.keeps_context) context_.clear();
    if (!context_.empty()) context_.pop_back();  // the pending id has no row yet
    step_ = 0;
    ++resets;
  }
  void poison() override { ++poisons; }
  void prefill(std::span<const int32_t> ids) override {
    context_.insert(context_.end(), ids.begin(), ids.end());
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    if (forced != nullptr && !behaviour_.takes_forced)
      throw Error(ErrorKind::kRuntime, "fake: takes no forced ids");
    if (!behaviour_.stuck_counter) launches_ += behaviour_.launches_per_decode;
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      // The context ends with the pending id; a forced input replaces the id that the last step
      // emitted.
      if (t > 0 && forced != nullptr) context_.back() = forced[t];
      std::vector<float> z = logits_of(context_);
      int32_t id = static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());
      if (behaviour_.at_step)
        behaviour_.at_step({step_, position(), context_.front(), logits_out != nullptr, resets}, z,
                           id);
      if (logits_out != nullptr && !(behaviour_.unwritten_logits && t == n - 1)) {
        std::copy(z.begin(), z.end(), logits_out + static_cast<size_t>(t) * kFakeVocab);
      }
      ids.push_back(id);
      context_.push_back(id);
      ++step_;
    }
    longest_decode = std::max(longest_decode, n);
    if (logits_out != nullptr) longest_with_logits = std::max(longest_with_logits, n);
    ids.resize(ids.size() - static_cast<size_t>(behaviour_.missing_ids));
    return ids;
  }
  void set_pending(int32_t id) override {
    if (!behaviour_.ignores_pending) context_.back() = id;
  }
  Snapshot save() override { return {position(), context_.back(), 0}; }
  void restore(const Snapshot& s) override {
    if (behaviour_.modified_prefix)
      throw Error(ErrorKind::kIntegrity, "fake: restore: rows were modified");
    context_.resize(static_cast<size_t>(s.position) + 1);
  }
  void rewind(int position) override {
    context_.resize(static_cast<size_t>(position + *behaviour_.rewinds_off));
    context_.push_back(-1);
  }
  std::optional<std::vector<float>> hidden(int layer) override {
    if (!behaviour_.hidden) return std::nullopt;
    return behaviour_.hidden(context_, layer);
  }
  std::optional<std::vector<float>> kv_row(int layer, int row) override {
    if (!behaviour_.kv_row) return std::nullopt;
    return behaviour_.kv_row(context_, layer, row);
  }
  int position() const override { return static_cast<int>(context_.size()) - 1; }
  int64_t launch_count() const override { return launches_; }
  DecodeTimes last_times() const override { return {}; }
  Progress progress() const override { return {}; }

  int resets = 0, poisons = 0, longest_decode = 0, longest_with_logits = 0;

 private:
  std::vector<float> logits_of(const std::vector<int32_t>& context) const {
    std::vector<float> z = true_logits(context);
    const uint64_t key = behaviour_.noise_seed + 1'000'000 * context.size();
    // The second logit of a near tie lies exactly kTieGap under the top.
    const float top = *std::max_element(z.begin(), z.end());
    for (size_t i = 0; i < z.size(); ++i) {
      const bool is_second = z[i] == top - kTieGap;
      if (behaviour_.noise > 0) {
        z[i] += static_cast<float>(behaviour_.noise * unit(splitmix64(key) ^ (i << 8)));
      }
      if (is_second && behaviour_.tie_error) z[i] += static_cast<float>(*behaviour_.tie_error);
      if (behaviour_.round_logits) z[i] = round_to_bf16(z[i]);
    }
    return z;
  }

  FakeBehaviour behaviour_;
  std::vector<int32_t> context_;
  int step_ = 0;
  int64_t launches_ = 0;
};

}  // namespace mkbench::testing
