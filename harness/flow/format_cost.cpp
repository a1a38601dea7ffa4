#include "harness/flow/format_cost.h"

#include <algorithm>
#include <span>

#include "harness/flow/timed_truth.h"
#include "harness/judge/format_cost.h"

namespace mkbench {
namespace {

struct CostPath {
  std::vector<int32_t> ids;
  size_t text = 0;  // of these, how many are text
};

std::vector<CostPath> cost_paths(const std::vector<GreedyReference>& references) {
  std::vector<CostPath> paths;
  for (const GreedyReference& reference : references) {
    if (reference.token_only) continue;
    for (const ReferencePrompt& prompt : reference.prompts) {
      CostPath& path = paths.emplace_back();
      path.ids = prompt.ids;
      if (!prompt.text.empty()) path.text = prompt.ids.size();
      for (const ReferenceStep& step : prompt.steps) path.ids.push_back(step.token);
    }
  }
  for (CostPath& path : paths) {
    // The first id of a path is given, the others are predicted.
    path.ids.resize(std::min(path.ids.size(), 1 + std::max<size_t>(1, kCostSteps / paths.size())));
    path.text = std::min(path.text, path.ids.size());
  }
  return paths;
}

// Calls take(index of the path, index in it of the id that follows, logits).
template <typename Take>
void walk_paths(Engine& truth, const std::vector<CostPath>& paths, int vocab, const Take& take) {
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::vector<int32_t>& ids = paths[i].ids;
    start_afresh(truth, {ids.front()});
    walk_path(truth, {ids.begin() + 1, ids.end()}, 0, vocab,
              [&](size_t step, int32_t, std::span<const float> row) {
                take(i, step + 1, row);
                return true;
              });
  }
}

}  // namespace

bool tells_cost(const CaseJob& job, const std::vector<Contestant*>& candidates) {
  if (!job.original || job.judged || candidates.empty()) return false;
  return job.original->folder != job.model.folder ||
         std::any_of(candidates.begin(), candidates.end(),
                     [](const Contestant* c) { return c->own_weights; });
}

FormatCost cost_of_format(const CaseJob& job, const CaseServices& services,
                          const ModelWeights& weights,
                          const std::vector<GreedyReference>& references, int max_context,
                          ProgressWatch& watch) {
  const std::vector<CostPath> paths = cost_paths(references);
  const int vocab = weights.config.shape.vocab;
  std::vector<float> of_quantised;
  CostSums sums;
  for (const bool original : {false, true}) {
    if (services.stop()) throw Interrupted{};
    const std::string name = judge_runs(job).truth;
    watch.begin("cost of the format", name, nullptr);
    const std::unique_ptr<Engine> truth = services.make_engine(
        {.name = name,
         .max_context = max_context,
         .settings = original ? "original=" + job.original->folder.string() : ""},
        weights);
    const WatchEnd end(watch);
    watch.begin("cost of the format", name, truth.get());
    size_t at = 0;
    walk_paths(*truth, paths, vocab, [&](size_t path, size_t next, std::span<const float> row) {
      if (!original) {
        of_quantised.insert(of_quantised.end(), row.begin(), row.end());
        return;
      }
      const std::span<const float> other =
          std::span(of_quantised).subspan(at, static_cast<size_t>(vocab));
      sums.add(row, other, next < paths[path].text ? paths[path].ids[next] : -1);
      at += static_cast<size_t>(vocab);
    });
  }
  FormatCost cost = sums.cost();
  cost.original = job.original->name;
  cost.limit = job.max_kl;
  return cost;
}

}  // namespace mkbench
