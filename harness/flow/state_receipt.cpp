#include "harness/flow/state_receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string_view>

#include "harness/flow/timed_truth.h"
#include "harness/judge/repeats.h"

namespace mkbench {
namespace {

// Compares a run with logits with the timed run; `problem` names the first step that differs.
class Comparison {
 public:
  Comparison(const EngineCapabilities& can, const std::vector<int32_t>& path, size_t timed,
             const std::vector<float>& logits, size_t vocab)
      : can_(can), path_(path), timed_(timed), logits_(logits), vocab_(vocab) {}

  bool take(size_t step, int32_t emitted, std::span<const float> row) {
    const bool further = step >= timed_;
    const bool may_differ =
        !can_.deterministic && (!further || (near_top(path_[step], row) && near_top(emitted, row)));
    if (emitted != path_[step] && !may_differ) {
      problem =
          fmt::format("step {}: id {} {}, {} in a run that shows its logits", step, path_[step],
                      further ? "after the timed run" : "in the timed run", emitted);
      return false;
    }
    if (!further || !can_.deterministic) return true;
    const float* left = logits_.data() + (step - timed_) * vocab_;
    for (size_t i = 0; i < vocab_; ++i) {
      if (same_bits(left[i], row[i])) continue;
      problem = fmt::format(
          "step {}: logit {} is {:.9g} after the timed run, {:.9g} after a run that shows its "
          "logits",
          step, i, left[i], row[i]);
      return false;
    }
    return true;
  }

  std::string problem;

 private:
  // Whether an engine whose bits vary may choose the id: four steps of bf16 at the largest logit.
  static bool near_top(int32_t id, std::span<const float> row) {
    constexpr float kOfLargest = 1.0f / 64;
    if (id < 0 || static_cast<size_t>(id) >= row.size()) return false;
    float most = row[0], largest = 0;
    for (const float logit : row) {
      most = std::max(most, logit);
      largest = std::max(largest, std::fabs(logit));
    }
    return most - row[static_cast<size_t>(id)] <= kOfLargest * largest;
  }

  const EngineCapabilities& can_;
  const std::vector<int32_t>& path_;
  const size_t timed_;
  const std::vector<float>& logits_;
  const size_t vocab_;
};

// Says where two runs over `path`, both with logits, differ; empty if their bits are equal.
std::string differs_from_itself(Engine& engine, int vocab, const std::vector<int32_t>& path,
                                const std::function<void()>& restart) {
  std::vector<size_t> first;
  const auto hash_of = [](std::span<const float> row) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(row.data()), row.size_bytes()});
  };
  restart();
  walk_path(engine, path, 0, vocab, [&](size_t, int32_t, std::span<const float> row) {
    first.push_back(hash_of(row));
    return true;
  });
  std::string differs;
  restart();
  walk_path(engine, path, 0, vocab, [&](size_t step, int32_t, std::span<const float> row) {
    if (step >= first.size() || hash_of(row) == first[step]) return true;
    differs = fmt::format("two runs with logits differ at step {}", step);
    return false;
  });
  return differs;
}

}  // namespace

bool has_rows_of(Engine& engine, int steps, const std::function<void()>& restart) {
  const uint64_t rows = engine.save().kv_checksum;
  try {
    restart();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIntegrity) throw;
    return false;
  }
  engine.decode(steps);
  return engine.save().kv_checksum == rows;
}

StateReceipt take_state_receipt(Engine& engine, int vocab, const std::vector<int32_t>& ids,
                                const std::function<void()>& restart) {
  const EngineCapabilities can = engine.capabilities();
  const int steps = std::min(kStateSteps, can.max_context - engine.position());
  if (steps < 1) return {};
  if (!can.logits) return {.compared = "further ids", .further = engine.decode(steps)};
  const bool rows = can.snapshots && can.deterministic;
  const uint64_t left_rows = rows ? engine.save().kv_checksum : 0;
  std::vector<float> logits(static_cast<size_t>(steps) * static_cast<size_t>(vocab), std::nanf(""));
  std::vector<int32_t> path = ids;
  const std::vector<int32_t> further = engine.decode(steps, nullptr, logits.data());
  path.insert(path.end(), further.begin(), further.end());
  path.resize(ids.size() + static_cast<size_t>(steps), -1);

  StateReceipt receipt;
  receipt.compared = !can.deterministic ? "further ids" : rows ? "logits and KV rows" : "logits";
  Comparison comparison(can, path, ids.size(), logits, static_cast<size_t>(vocab));
  const TakeStep take = [&](size_t step, int32_t emitted, std::span<const float> row) {
    return comparison.take(step, emitted, row);
  };
  restart();
  walk_path(engine, ids, 0, vocab, take);
  const uint64_t shown_rows = rows && comparison.problem.empty() ? engine.save().kv_checksum : 0;
  if (comparison.problem.empty()) walk_path(engine, path, ids.size(), vocab, take);
  if (comparison.problem.empty() && rows && left_rows != shown_rows) {
    comparison.problem = fmt::format(
        "the checksum of the KV rows is {:016x} after the timed run, {:016x} after a "
        "run that shows its logits",
        left_rows, shown_rows);
  }
  if (comparison.problem.empty()) return receipt;
  const std::string itself =
      can.deterministic ? differs_from_itself(engine, vocab, path, restart) : "";
  receipt.repeats = itself.empty();
  receipt.problem =
      "state receipt: " + comparison.problem +
      (itself.empty()
           ? ": the timed run left another state"
           : "; " + itself + ": the engine claims equal bits for equal input, but its bits differ");
  return receipt;
}

}  // namespace mkbench
