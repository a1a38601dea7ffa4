#include "harness/judge/head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "harness/judge/budget.h"
#include "references/base/error.h"
#include "references/weight_edit.h"

namespace mkbench {
namespace {

constexpr size_t kLongestPrompt = 256;  // ids: every opened engine prefills them
// Each renaming is a copy of all weights, so large models have one, and the largest ones none.
constexpr int kRenamings = 4;
constexpr int64_t kSmallBytes = int64_t{64} << 20, kMostBytes = int64_t{4} << 30;

// A prompt, and the ids that win in its steps by more than a near tie.
struct Walk {
  ReferencePrompt prompt;
  std::vector<char> sure;  // by step
  std::vector<int32_t> winners;
};

Walk walk_of(const ReferencePrompt& prompt, double pairwise_d, bool logits_bf16) {
  Walk walk{.prompt = prompt, .sure = {}, .winners = {}};
  auto& steps = walk.prompt.steps;
  steps.resize(std::min(steps.size(), size_t{kMaxLogitSteps}));
  for (const ReferenceStep& s : steps) {
    walk.sure.push_back(s.margin > pairwise_d + (logits_bf16 ? bf16_step(s.max_abs) : 0));
    const bool is_new =
        std::find(walk.winners.begin(), walk.winners.end(), s.token) == walk.winners.end();
    if (walk.sure.back() && is_new) walk.winners.push_back(s.token);
  }
  return walk;
}

// The walk with the most winners; without any if no reference has logits.
Walk longest_walk(const std::vector<GreedyReference>& references, bool logits_bf16) {
  Walk best;
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      if (reference.token_only || prompt.ids.size() > kLongestPrompt) continue;
      Walk walk = walk_of(prompt, reference.pairwise_d, logits_bf16);
      if (walk.winners.size() > best.winners.size()) best = std::move(walk);
    }
  }
  return best;
}

struct Renaming {
  std::vector<int32_t> old_row;  // by new id: the row that it takes
  std::vector<int32_t> new_id;   // by old id
  std::vector<int32_t> equal;    // by new id: another id with the same row, or -1
};

// Renaming number `part` of `parts`, which together spread the winners over all of the head.
Renaming rename(const Walk& walk, int vocab, int part, int parts) {
  const auto rows = static_cast<size_t>(vocab);
  Renaming r{std::vector<int32_t>(rows), {}, std::vector<int32_t>(rows, -1)};
  std::iota(r.old_row.begin(), r.old_row.end(), 0);
  r.new_id = r.old_row;
  std::vector<char> kept(rows, false);  // by old id: the walk needs its row
  for (const int32_t id : walk.prompt.ids) kept[static_cast<size_t>(id)] = true;
  for (const ReferenceStep& s : walk.prompt.steps) kept[static_cast<size_t>(s.token)] = true;
  const int64_t last = int64_t{parts} * std::ssize(walk.winners) - 1;
  const auto place = [&](int64_t i) { return i * parts + part; };
  for (size_t i = 0; i < walk.winners.size(); ++i) {
    const auto winner = static_cast<size_t>(walk.winners[i]);
    const auto row = static_cast<size_t>(place(static_cast<int64_t>(i)) * (vocab - 1) /
                                         std::max<int64_t>(last, 1));
    const auto before = static_cast<size_t>(r.new_id[winner]);
    std::swap(r.old_row[before], r.old_row[row]);
    r.new_id[static_cast<size_t>(r.old_row[before])] = static_cast<int32_t>(before);
    r.new_id[winner] = static_cast<int32_t>(row);
  }
  // Equal rows beside each other, in one tile, in other tiles and in another half.
  const std::array<size_t, 6> distances = {1, rows / 2, 8, 32, rows / 3, 128};
  for (size_t i = 0; i < walk.winners.size(); ++i) {
    // First and last row win alone.
    const int64_t at = place(static_cast<int64_t>(i));
    if ((static_cast<int64_t>(i) + part) % 2 == 0 || at == last) continue;
    const auto row = static_cast<size_t>(r.new_id[static_cast<size_t>(walk.winners[i])]);
    for (size_t away = distances[i / 2 % distances.size()], n = 0; n < rows; ++n, ++away) {
      const size_t other = (row + away) % rows;
      if (kept[static_cast<size_t>(r.old_row[other])]) continue;
      r.old_row[other] = walk.winners[i];
      r.equal[row] = static_cast<int32_t>(other);
      r.equal[other] = static_cast<int32_t>(row);
      break;
    }
  }
  return r;
}

ModelWeights renamed(const ModelWeights& weights, const Renaming& r) {
  WeightEdit edit(weights);
  ModelWeights& w = edit.weights();
  const auto from = [&](int row) { return r.old_row[static_cast<size_t>(row)]; };
  edit.move_rows(w.embed_tokens, from);
  if (w.config.tie_word_embeddings) {
    w.lm_head = w.embed_tokens;
  } else {
    edit.move_rows(w.lm_head, from);
  }
  return w;
}

class Head {
 public:
  Head(const Walk& walk, int vocab, Findings& findings)
      : walk_(walk), vocab_(vocab), findings_(findings) {}

  void judge(Engine& engine, const Renaming& r) {
    ReferencePrompt prompt = walk_.prompt;
    prompt.name += " (renamed ids)";
    for (int32_t& id : prompt.ids) id = r.new_id[static_cast<size_t>(id)];
    for (ReferenceStep& s : prompt.steps) s.token = r.new_id[static_cast<size_t>(s.token)];
    const auto n = static_cast<int>(prompt.steps.size());
    std::vector<int32_t> ids;
    std::vector<float> logits;
    forced_run(engine, prompt, n, n, vocab_, findings_,
               [&](int, const auto& found, const auto&) { ids = found; });
    // True if the engine's own logits of two equal rows differ and the higher id has the larger one,
    // as a product that rounds by the place of a row can make them.
    const auto is_larger = [&](size_t step, int32_t high, int32_t low) {
      if (!engine.capabilities().logits) return false;
      if (logits.empty()) {
        forced_run(engine, prompt, 0, n, vocab_, findings_,
                   [&](int, const auto&, const auto& shown) { logits = shown; });
      }
      const float* row = logits.data() + step * static_cast<size_t>(vocab_);
      return row[high] > row[low];
    };
    for (size_t t = 0; t < ids.size(); ++t) {
      if (!walk_.sure[t]) continue;
      const int32_t own = prompt.steps[t].token, equal = r.equal[static_cast<size_t>(own)];
      const int32_t low = equal < 0 ? own : std::min(own, equal), high = std::max(own, equal);
      ++(equal < 0 ? alone_ : in_pairs_);
      if (ids[t] == low) continue;
      if (equal < 0 || ids[t] != high) {
        missed_.emplace(low, ids[t]);
      } else if (!is_larger(t, high, low)) {
        higher_.emplace(low, high);
        shows_logits_ = engine.capabilities().logits;
      }
    }
  }

  void conclude() {
    findings_.note(Check::kHead, fmt::format("{} steps won by one row, {} by one of two equal rows",
                                             alone_, in_pairs_));
    if (!higher_.empty()) {
      const auto [low, high] = *higher_.begin();
      findings_.fail(Check::kHead, shows_logits_ ? Verdict::kFailSelf : Verdict::kFailToken,
                     fmt::format("of two equal rows {} and {} of the head the higher id came back "
                                 "({} such pairs): the lowest id wins a tie",
                                 low, high, higher_.size()));
    }
    if (!missed_.empty()) {
      const auto [row, found] = *missed_.begin();
      findings_.fail(Check::kHead, Verdict::kFailToken,
                     fmt::format("id {} came back where the truth's largest logit stands in row {} "
                                 "of the head of {} rows ({} such rows)",
                                 found, row, vocab_, missed_.size()));
    }
  }

 private:
  const Walk& walk_;
  const int vocab_;
  Findings& findings_;
  int alone_ = 0, in_pairs_ = 0;
  bool shows_logits_ = false;
  std::map<int32_t, int32_t> higher_;  // lower id of a pair -> the higher one, which came back
  std::map<int32_t, int32_t> missed_;  // row that should have won -> the id that came back
};

}  // namespace

void judge_head(const ModelWeights& weights, const std::vector<GreedyReference>& references,
                bool logits_bf16, const OpenOn& open, const std::function<void()>& stop,
                Findings& findings) {
  const int vocab = weights.config.shape.vocab;
  const int64_t bytes = weights.config.weight_bytes();
  const Walk walk = longest_walk(references, logits_bf16);
  const auto rule_out = [&](std::string why) { findings.rule_out(Check::kHead, std::move(why)); };
  if (walk.winners.empty()) return rule_out("no prompt of the references has a decided step");
  if (weights.embed_tokens.rows != vocab || weights.lm_head.rows != vocab)
    return rule_out("embedding and head have other numbers of rows than the vocabulary");
  if (bytes > kMostBytes) {
    return rule_out(
        fmt::format("it takes a copy of the weights, which are {:.1f} GB; made up to "
                    "{:.1f} GB",
                    static_cast<double>(bytes) / 1e9, static_cast<double>(kMostBytes) / 1e9));
  }
  const int parts = bytes <= kSmallBytes ? kRenamings : 1;
  Head head(walk, vocab, findings);
  int done = 0;
  try {
    for (; done < parts; ++done) {
      stop();
      const Renaming names = rename(walk, vocab, done, parts);
      head.judge(*open(renamed(weights, names)), names);
    }
  } catch (const BudgetEnded&) {
    head.conclude();
    return findings.unfinished(Check::kHead, fmt::format("{} of {} renamed heads", done, parts));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEnvUnfit || done > 0) throw;
    return rule_out(error.what());
  }
  head.conclude();
}

}  // namespace mkbench
