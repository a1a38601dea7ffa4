#include "harness/flow/timed_truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/judge/findings.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/oracle.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

bool has_state(const std::vector<int32_t>& ids) {
  return std::all_of(ids.begin(), ids.end(), [](int32_t id) { return synthetic_state(id) >= 0; });
}

// A committed prompt of one id (or of exactly the ids asked for) whose continuation is strict and
// at least `tokens` long; null where there is none.
const ReferencePrompt* continued_prompt(const CaseJob& job,
                                        const std::vector<GreedyReference>& references,
                                        int tokens) {
  for (const GreedyReference& reference : references) {
    // Published ids say nothing about near ties, after which another path is right too. A reference
    // without a file is live, not committed.
    if (reference.token_only || reference.path.empty()) continue;
    for (const ReferencePrompt& prompt : reference.prompts) {
      // Only where a path has no near ties must every right engine follow it.
      if (prompt.set != "strict" || prompt.steps.size() < static_cast<size_t>(tokens)) continue;
      if (job.ids.empty() ? prompt.ids.size() == 1 : prompt.ids == job.ids) return &prompt;
    }
  }
  return nullptr;
}

std::vector<int32_t> seeded_ids(uint64_t seed, int count, const ModelShape& shape) {
  // Byte-level vocabularies get printable text, on which the tiny checkpoints were trained.
  const bool bytes = is_byte_level(shape);
  const uint64_t low = bytes ? 0x20 : 0, range = bytes ? 0x5f : static_cast<uint64_t>(shape.vocab);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(low + splitmix64(seed + static_cast<uint64_t>(i)) % range));
  }
  return ids;
}

}  // namespace

const std::vector<int32_t>& TimedTruth::expected_of(const std::string& engine) const {
  const auto own = by_engine.find(engine);
  return own != by_engine.end() ? own->second : expected;
}

std::optional<TimedTruth> known_truth(const CaseJob& job, const ModelWeights& weights,
                                      const std::vector<GreedyReference>& references, int tokens) {
  const int depth = first_depth(job);
  TimedTruth truth;
  if (!weights.lagset.empty()) {
    truth.prompt = job.ids.empty() ? synthetic_prompt(depth, job.seed) : job.ids;
    if (depth < synthetic_min_depth(weights.lagset) || !has_state(truth.prompt))
      return std::nullopt;
    truth.check = "closed form";
    truth.expected = synthetic_continuation(truth.prompt, weights.lagset, tokens);
    return truth;
  }
  if (depth != 0 && job.ids.empty()) return std::nullopt;
  const ReferencePrompt* prompt = continued_prompt(job, references, tokens);
  if (prompt == nullptr) return std::nullopt;
  truth.check = "committed continuation";
  truth.prompt = prompt->ids;
  for (int i = 0; i < tokens; ++i) {
    truth.expected.push_back(prompt->steps[static_cast<size_t>(i)].token);
  }
  return truth;
}

std::vector<int32_t> timed_prompt(const CaseJob& job, const ModelShape& shape) {
  if (!job.ids.empty()) {
    for (const int32_t id : job.ids) {
      if (id >= 0 && id < shape.vocab) continue;
      throw Error(ErrorKind::kBadInput,
                  fmt::format("--ids: id {} is outside the vocabulary of {}", id, shape.vocab));
    }
    return job.ids;
  }
  return seeded_ids(job.seed, first_depth(job) + 1, shape);
}

std::vector<std::vector<int32_t>> live_parity_prompts(
    const CaseJob& job, const ModelShape& shape, const std::vector<GreedyReference>& references) {
  constexpr int kLengths[] = {1, 5, 17, 64};
  std::vector<std::vector<int32_t>> prompts;
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      if (std::find(prompts.begin(), prompts.end(), prompt.ids) == prompts.end())
        prompts.push_back(prompt.ids);
    }
  }
  if (!prompts.empty()) return prompts;
  for (const int length : kLengths) {
    prompts.push_back(
        seeded_ids(splitmix64(job.seed + static_cast<uint64_t>(length)), length, shape));
  }
  return prompts;
}

std::string confirm_path(Engine& truth, const std::vector<int32_t>& path, int vocab,
                         double pairwise_d, bool logits_bf16) {
  const int first_position = truth.position();
  const int n = static_cast<int>(path.size());
  std::vector<float> logits;
  for (int start = 0; start < n; start += kMaxLogitSteps) {
    const int count = std::min(kMaxLogitSteps, n - start);
    // decode() ignores forced[0] and takes the pending id, which set_pending() sets below.
    std::vector<int32_t> inputs(static_cast<size_t>(count), 0);
    for (int i = 1; i < count; ++i) {
      inputs[static_cast<size_t>(i)] = path[static_cast<size_t>(start + i - 1)];
    }
    if (start > 0) truth.set_pending(path[static_cast<size_t>(start - 1)]);
    logits.assign(static_cast<size_t>(count) * static_cast<size_t>(vocab), std::nanf(""));
    truth.decode(count, inputs.data(), logits.data());
    for (int i = 0; i < count; ++i) {
      const std::span<const float> row(
          logits.data() + static_cast<size_t>(i) * static_cast<size_t>(vocab),
          static_cast<size_t>(vocab));
      const int32_t id = path[static_cast<size_t>(start + i)];
      const int32_t top = argmax_lowest(row);
      if (id == top) continue;
      const int position = first_position + start + i;
      if (top < 0 || id < 0 || id >= vocab) {
        return fmt::format("position {}: found {}, wanted {}", position, id, top);
      }
      float largest = 0;
      for (const float z : row) largest = std::max(largest, std::fabs(z));
      const double tau = pairwise_d + (logits_bf16 ? bf16_step(double{largest}) : 0);
      const double gap =
          double{row[static_cast<size_t>(top)]} - double{row[static_cast<size_t>(id)]};
      if (gap <= tau) continue;
      return fmt::format("position {}: found {}, wanted {} (gap {:.3g}, tau {:.3g})", position, id,
                         top, gap, tau);
    }
  }
  return "";
}

}  // namespace mkbench
