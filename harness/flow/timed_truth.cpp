#include "harness/flow/timed_truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "harness/judge/findings.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int32_t kFirstPrintable = 0x20, kPrintables = 0x5f;  // bytes of printable ASCII

bool is_printable(int32_t id) {
  return id >= kFirstPrintable && id < kFirstPrintable + kPrintables;
}

std::vector<int32_t> seeded_ids(uint64_t seed, int count, const ModelShape& shape) {
  // Byte-level vocabularies get printable text, on which the tiny checkpoints were trained.
  const bool bytes = is_byte_level(shape);
  const uint64_t low = bytes ? kFirstPrintable : 0;
  const uint64_t range = bytes ? kPrintables : static_cast<uint64_t>(shape.vocab);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(low + splitmix64(seed + static_cast<uint64_t>(i)) % range));
  }
  return ids;
}

// Whether the closed form of a lag set gives the ids that follow the job's prompt.
bool covers(std::string_view lagset, const CaseJob& job, int vocab, uint64_t salt) {
  if (lagset.empty() || first_depth(job) < synthetic_min_depth(lagset)) return false;
  if (job.ids.empty()) return true;  // a generated prompt, whose ids all have states (StateCode)
  const StateCode code(vocab, salt);
  return std::all_of(job.ids.begin(), job.ids.end() - 1,
                     [&](int32_t id) { return code.state(id) >= 0; });
}

}  // namespace

std::vector<int32_t> TimedTruth::ending_with(int32_t late_id) const {
  std::vector<int32_t> ids = prompt;
  ids.back() = late_id;
  return ids;
}

std::optional<std::vector<int32_t>> TimedTruth::expected(int32_t late_id, int n) const {
  if (lagset.empty()) return std::nullopt;
  return synthetic_continuation(ending_with(late_id), lagset, n, vocab, salt);
}

TimedTruth find_timed_truth(const CaseJob& job, const ModelWeights& weights, int process) {
  const ModelShape& shape = weights.config.shape;
  const bool covered = covers(weights.lagset, job, shape.vocab, weights.salt);
  TimedTruth truth;
  truth.vocab = shape.vocab;
  truth.salt = weights.salt;
  const uint64_t seed =
      process == 0 ? job.prompt_seed
                   : splitmix64(job.prompt_seed ^ splitmix64(static_cast<uint64_t>(process)));
  truth.prompt = covered && job.ids.empty()
                     ? synthetic_prompt(first_depth(job), seed, shape.vocab, weights.salt)
                     : timed_prompt(job, shape);
  std::optional<StateCode> code;
  if (covered) {
    truth.lagset = weights.lagset;
    code.emplace(shape.vocab, weights.salt);
  }
  const bool bytes = is_byte_level(shape);
  for (int32_t id = 0; id < shape.vocab; ++id) {
    if (code ? code->state(id) >= 0 : !bytes || is_printable(id)) truth.late_ids.push_back(id);
  }
  return truth;
}

bool has_closed_form(const CaseJob& job, const ModelShape& shape) {
  const ModelRow* row = model_at_depth(job.model, first_depth(job)).row;
  return is_analytic(row) && covers(row->lagset, job, shape.vocab, job.salt);
}

TruthOf truth_by_process(const CaseJob& job, const ModelWeights& weights) {
  const auto truths = std::make_shared<std::map<int, TimedTruth>>();
  return [&job, &weights, truths](int process) -> const TimedTruth& {
    const auto [found, is_new] = truths->try_emplace(process);
    if (is_new) found->second = find_timed_truth(job, weights, process);
    return found->second;
  };
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
  return seeded_ids(job.prompt_seed, first_depth(job) + 1, shape);
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
  const ModelRow* row = job.model.row;
  // A planted head whose position is not there yet may have near ties among its scores, which bf16
  // decides otherwise than fp32 (a cut of Llama-3.2-1B to four layers: D is 5.5 there).
  const int least =
      is_analytic(row) && !shape.qk_norm ? synthetic_min_depth(parity_lagset(*row)) : 0;
  for (const int more : kLengths) {
    const int length = least + more;
    const uint64_t seed = splitmix64(job.seed + static_cast<uint64_t>(length));
    const bool closed_form = is_analytic(row) && length > synthetic_min_depth(parity_lagset(*row));
    prompts.push_back(closed_form ? synthetic_prompt(length - 1, seed, shape.vocab)
                                  : seeded_ids(seed, length, shape));
  }
  return prompts;
}

void start_afresh(Engine& engine, const std::vector<int32_t>& prompt) {
  engine.reset();
  engine.poison();
  engine.prefill(prompt);
}

void start_again(Engine& engine, const Snapshot& start, const std::vector<int32_t>& prompt) {
  const EngineCapabilities can = engine.capabilities();
  if (!can.snapshots && !can.rewind) return start_afresh(engine, prompt);
  if (can.snapshots) {
    engine.restore(start);
  } else {
    engine.rewind(static_cast<int>(prompt.size()) - 1);
  }
  engine.poison();
}

void walk_path(Engine& engine, const std::vector<int32_t>& path, size_t first, int vocab,
               const TakeStep& take) {
  const bool forced = engine.capabilities().forced;
  std::vector<float> logits;
  for (size_t start = first; start < path.size(); start += kMaxLogitSteps) {
    const size_t count = std::min(size_t{kMaxLogitSteps}, path.size() - start);
    // decode() ignores forced[0] and takes the pending id.
    std::vector<int32_t> inputs(count, 0);
    for (size_t i = 1; i < count; ++i) inputs[i] = path[start + i - 1];
    if (start > 0 && forced) engine.set_pending(path[start - 1]);
    logits.assign(count * static_cast<size_t>(vocab), std::nanf(""));
    const std::vector<int32_t> ids =
        engine.decode(static_cast<int>(count), forced ? inputs.data() : nullptr, logits.data());
    for (size_t i = 0; i < count; ++i) {
      const std::span<const float> row(logits.data() + i * static_cast<size_t>(vocab),
                                       static_cast<size_t>(vocab));
      if (!take(start + i, i < ids.size() ? ids[i] : -1, row)) return;
    }
  }
}

WrongId confirm_path(Engine& truth, const std::vector<int32_t>& path, int vocab, double pairwise_d,
                     bool logits_bf16, const std::vector<double>& own_d) {
  const size_t first_position = static_cast<size_t>(truth.position());
  WrongId wrong;
  walk_path(truth, path, 0, vocab, [&](size_t step, int32_t, std::span<const float> row) {
    const int32_t id = path[step], top = argmax_lowest(row);
    if (id == top) return true;
    wrong = {fmt::format("position {}: found {}, wanted {}", first_position + step, id, top), step,
             top};
    if (top < 0 || id < 0 || id >= vocab) return false;
    const double d = own_d.empty() ? pairwise_d : std::max(pairwise_d, own_d.at(step));
    const double tau = tau_of(row, d, logits_bf16);
    const double gap = double{row[static_cast<size_t>(top)]} - double{row[static_cast<size_t>(id)]};
    if (gap > tau) {
      wrong.text += fmt::format(" (gap {:.3g}, tau {:.3g})", gap, tau);
      return false;
    }
    wrong = {};
    return true;
  });
  return wrong;
}

}  // namespace mkbench
