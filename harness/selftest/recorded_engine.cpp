#include "harness/selftest/recorded_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "references/base/error.h"
#include "references/oracle.h"

namespace mkbench {
namespace {

// What both engines of this file share: neither snapshots nor poison.
class BareEngine : public Engine {
 public:
  BareEngine(const char* name, int context) : name_(name), context_(context) {}

  EngineCapabilities capabilities() const override {
    return {.name = name_,
            .device = "cpu",
            .max_context = context_,
            .logits = true,
            .one_launch = true,
            .forced = true,
            .snapshots = false,
            .poison = false,
            .counted = true};
  }
  void poison() override {}
  Snapshot save() override { throw no_snapshots(); }
  void restore(const Snapshot&) override { throw no_snapshots(); }
  int64_t launch_count() const override { return launches_; }
  DecodeTimes last_times() const override { return {}; }
  Progress progress() const override { return {position(), -1, {}}; }

 protected:
  int64_t launches_ = 0;

 private:
  Error no_snapshots() const {
    return {ErrorKind::kBadInput, std::string(name_) + ": no snapshots"};
  }

  const char* const name_;
  const int context_;
};

class Replay final : public BareEngine {
 public:
  Replay(std::shared_ptr<const Recording> recording, ReplayOptions options)
      : BareEngine("recorded", 4096),
        recording_(std::move(recording)),
        options_(std::move(options)) {}

  void reset() override { step_ = 0, position_ = 0; }
  void prefill(std::span<const int32_t> ids) override {
    const auto& known = recording_->prompts;
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& prompt) {
      return std::equal(prompt.begin(), prompt.end(), ids.begin(), ids.end());
    });
    if (found == known.end() || position_ != 0) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("recorded: prefill of {} ids at position {}: no such recording",
                              ids.size(), position_));
    }
    prompt_ = static_cast<size_t>(found - known.begin());
    position_ = static_cast<int>(ids.size()) - 1;
  }

  std::vector<int32_t> decode(int n, const int32_t* /*forced*/, float* logits_out) override {
    const auto& steps = recording_->logits[prompt_];
    if (n < 1 || step_ + static_cast<size_t>(n) > steps.size()) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("recorded: {} steps from step {} on: the recording has {}", n, step_,
                              steps.size()));
    }
    ++decodes_;
    if (!options_.stuck_counter) ++launches_;
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t, ++step_, ++position_) {
      if (options_.stale_output) {
        ids.push_back(-1);
        continue;
      }
      std::vector<float> logits = steps[step_];
      int32_t id = argmax_lowest(logits);
      if (options_.edit) {
        options_.edit({prompt_, step_, decodes_, logits_out != nullptr, &logits, &id});
      }
      if (logits_out != nullptr) {
        std::copy(logits.begin(), logits.end(),
                  logits_out + static_cast<size_t>(t) * logits.size());
      }
      ids.push_back(id);
    }
    ids.resize(ids.size() - static_cast<size_t>(std::min(n, options_.missing_ids)));
    return ids;
  }
  void set_pending(int32_t) override {}
  int position() const override { return position_; }

 private:
  const std::shared_ptr<const Recording> recording_;
  const ReplayOptions options_;
  size_t prompt_ = 0, step_ = 0;
  int position_ = 0, decodes_ = 0;
};

// The oracle as an engine.
class OracleEngine final : public BareEngine {
 public:
  explicit OracleEngine(const ModelWeights& weights)
      : BareEngine("oracle", weights.config.max_positions),
        oracle_(weights),
        vocab_(weights.config.shape.vocab) {}

  void reset() override {
    oracle_.reset();
    pending_ = -1;
  }
  void prefill(std::span<const int32_t> ids) override {
    for (const int32_t id : ids) {
      if (pending_ >= 0) oracle_.step(pending_, false);
      pending_ = id;
    }
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    ++launches_;
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      if (t > 0 && forced != nullptr) pending_ = forced[t];
      const std::vector<float> logits = oracle_.step(pending_);
      if (logits_out != nullptr) {
        std::copy(logits.begin(), logits.end(), logits_out + int64_t{t} * vocab_);
      }
      ids.push_back(pending_ = argmax_lowest(logits));
      if (pending_ < 0)
        pending_ = 0;  // all NaN: decoding goes on, so that the judge sees the logits
    }
    return ids;
  }
  void set_pending(int32_t id) override { pending_ = id; }
  int position() const override { return oracle_.position(); }

 private:
  Oracle oracle_;
  const int vocab_;
  int32_t pending_ = -1;
};

}  // namespace

std::unique_ptr<Engine> make_oracle_engine(const ModelWeights& weights) {
  return std::make_unique<OracleEngine>(weights);
}

Recording record_truth(const ModelWeights& weights, const GreedyReference& reference) {
  Recording recording{.vocab = weights.config.shape.vocab, .prompts = {}, .logits = {}};
  Oracle oracle(weights, 1);
  for (const ReferencePrompt& prompt : reference.prompts) {
    oracle.reset();
    for (size_t i = 0; i + 1 < prompt.ids.size(); ++i) oracle.step(prompt.ids[i], false);
    std::vector<std::vector<float>> rows;
    int32_t input = prompt.ids.back();
    for (const ReferenceStep& step : prompt.steps) {
      rows.push_back(oracle.step(input));
      input = step.token;
    }
    recording.prompts.push_back(prompt.ids);
    recording.logits.push_back(std::move(rows));
  }
  return recording;
}

std::unique_ptr<Engine> make_replay(std::shared_ptr<const Recording> recording,
                                    ReplayOptions options) {
  return std::make_unique<Replay>(std::move(recording), std::move(options));
}

}  // namespace mkbench
