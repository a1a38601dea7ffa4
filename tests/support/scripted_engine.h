// An engine whose tokens follow a rule on integers, with faults on demand, for tests of the code
// around engines.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "references/base/error.h"
#include "references/engine.h"

namespace mkbench::testing {

using Ids = std::vector<int32_t>;

// The faults of a scripted engine. Decodes are counted from 1 over the engine's life.
struct Script {
  std::string name = "scripted", device = "cpu";
  int vocab = 16;
  bool one_launch = false;
  std::function<bool(int decode, int position)> wrong;  // this step emits a wrong token
  std::function<bool(int decode)> skip;  // nothing runs: ids stay -1, the counter stands still
  std::function<bool(int decode)> extra_launch, no_launch;  // the ids are right all the same
  std::function<void(int decode)> before;  // may throw, raise a signal, let time pass
  // Gets the name of each call that changes or runs the sequence.
  std::function<void(const char* call)> called;
  std::function<void(size_t ids)> prefills;
  std::function<bool(int decode)> nan_logits;
  std::function<uint64_t(int prefill)> kv_checksum;  // over all rows; `prefill` counts prefills
  std::function<double(int decode)> event_ms;        // time of the decode; 0: no event clock
  std::function<int32_t(const std::vector<int32_t>&)> rule;  // next token, from all ids so far
  bool copies = false;  // restore() brings back rows that save() copied, in place of comparing them
  // Makes skip_to() work.
  bool skips = false;
  int context_limit = 0;  // 0: it has room for 4,096 positions
  float runner_up = 0;    // logit of the second-best id (the best has 10)
  // Called in each decode, before its first step.
  std::function<void(int tokens, bool with_logits, int position)> works{};
  bool late_id = true, snapshots = true, rewinds = false, logits = true, deterministic = true;
};

inline int32_t scripted_token(int32_t input, int position, int vocab) {
  return static_cast<int32_t>((int64_t{input} * 5 + position * 3 + 1) % vocab);
}

class ScriptedEngine : public Engine {
 public:
  explicit ScriptedEngine(Script script) : script_(std::move(script)) {}

  EngineCapabilities capabilities() const override {
    return {.name = script_.name,
            .device = script_.device,
            .max_context = room(),
            .context_limit = script_.context_limit,
            .logits = script_.logits,
            .one_launch = script_.one_launch,
            .snapshots = script_.snapshots,
            .rewind = script_.rewinds,
            .late_id = script_.late_id,
            .deterministic = script_.deterministic};
  }
  void reset() override {
    tell("reset");
    position_ = 0, pending_ = -1;
    history_.clear();
  }
  void poison() override { tell("poison"); }
  void audit() override { tell("audit"); }
  void prefill(std::span<const int32_t> ids) override {
    tell("prefill");
    if (script_.prefills) script_.prefills(ids.size());
    ++prefills_;
    position_ += static_cast<int>(ids.size()) - 1 + (pending_ >= 0 ? 1 : 0);
    if (position_ > room()) throw Error(ErrorKind::kBadInput, "scripted: prefill: no room");
    pending_ = ids.back();
    history_.insert(history_.end(), ids.begin(), ids.end());
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    tell("decode");
    ++decodes_;
    if (script_.before) script_.before(decodes_);
    if (script_.works) script_.works(n, logits_out != nullptr, position_);
    if (position_ + n > room()) throw Error(ErrorKind::kBadInput, "scripted: decode: no room");
    if (script_.skip && script_.skip(decodes_))
      return std::vector<int32_t>(static_cast<size_t>(n), -1);
    launches_ += 1 + (script_.extra_launch && script_.extra_launch(decodes_) ? 1 : 0) -
                 (script_.no_launch && script_.no_launch(decodes_) ? 1 : 0);
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      if (t > 0 && forced != nullptr) set_pending(forced[t]);
      const int32_t right = script_.rule ? script_.rule(history_)
                                         : scripted_token(pending_, position_, script_.vocab);
      const bool wrong = script_.wrong && script_.wrong(decodes_, position_);
      const int32_t id = wrong ? (right + 1) % script_.vocab : right;
      if (logits_out != nullptr) write_logits(logits_out + int64_t{t} * script_.vocab, right, id);
      ids.push_back(id);
      pending_ = id;
      history_.push_back(id);
      ++position_;
    }
    times_ = DecodeTimes{};
    if (script_.event_ms) times_.event_ms = script_.event_ms(decodes_);
    return ids;
  }
  void set_pending(int32_t id) override { pending_ = history_.back() = id; }
  Snapshot save() override {
    return {position_,
            pending_,
            script_.kv_checksum ? script_.kv_checksum(prefills_) : 0,
            {static_cast<float>(prefills_)}};
  }
  void rewind(int position) override {
    tell("rewind");
    position_ = position, pending_ = -1;
    history_.resize(static_cast<size_t>(position) + 1);
  }
  void restore(const Snapshot& s) override {
    tell("restore");
    if (script_.copies) prefills_ = static_cast<int>(s.derived.at(0));
    if (save().kv_checksum != s.kv_checksum)
      throw Error(ErrorKind::kIntegrity, "scripted: restore: rows were modified");
    position_ = s.position;
    history_.resize(static_cast<size_t>(s.position) + 1);
    set_pending(s.pending);
  }
  int position() const override { return position_; }
  bool skip_to(int position) override {
    if (!script_.skips) return false;
    reset();
    position_ = position;
    history_.assign(static_cast<size_t>(position) + 1, 0);
    pending_ = 0;
    return true;
  }
  int64_t launch_count() const override { return launches_; }
  DecodeTimes last_times() const override { return times_; }
  Progress progress() const override { return {position_, -1, {}}; }

 private:
  int room() const { return script_.context_limit > 0 ? script_.context_limit : 4096; }
  void tell(const char* call) const {
    if (script_.called) script_.called(call);
  }
  // The emitted id gets the largest logit. Where it is wrong, the right id gets the second largest.
  void write_logits(float* row, int32_t right, int32_t id) const {
    for (int i = 0; i < script_.vocab; ++i) row[i] = 0.01f * static_cast<float>(i % 16);
    row[(right + 1) % script_.vocab] = script_.runner_up;
    row[right] = 10;
    if (id != right) row[id] = 10.5f;
    if (script_.nan_logits && script_.nan_logits(decodes_)) row[0] = std::nanf("");
  }

  Script script_;
  int position_ = 0, decodes_ = 0, prefills_ = 0;
  int32_t pending_ = -1;
  std::vector<int32_t> history_;  // the last id is pending
  int64_t launches_ = 0;
  DecodeTimes times_;
};

}  // namespace mkbench::testing
