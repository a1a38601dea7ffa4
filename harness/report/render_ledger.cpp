// Where the time between an op-by-op baseline and a candidate goes.
#include <fmt/format.h>

#include <algorithm>

#include "harness/report/readings.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

bool was_traced(const EngineReport& e) {
  return e.ms_per_tok && e.launch_trace && e.launch_trace->problem.empty() &&
         e.launch_trace->tokens > 0;
}

// Baselines that were traced and that `want` accepts, the slowest first.
template <typename Want>
std::vector<const EngineReport*> traced_baselines(const CaseReport& c, const Want& want) {
  std::vector<const EngineReport*> found;
  for (const EngineReport& e : c.engines) {
    if (e.role == "baseline" && was_traced(e) && want(e)) found.push_back(&e);
  }
  std::stable_sort(found.begin(), found.end(), [](const EngineReport* a, const EngineReport* b) {
    return a->ms_per_tok->mean > b->ms_per_tok->mean;
  });
  return found;
}

}  // namespace

std::vector<std::string> ledger_notes(const CaseReport& c) {
  const auto starts = traced_baselines(
      c, [](const EngineReport& e) { return e.launch_trace->graph_launches == 0; });
  if (starts.empty()) return {};
  const EngineReport* start = starts.front();
  const double from = start->ms_per_tok->mean;
  const double works = start->launch_trace->busy_ms / start->launch_trace->tokens;
  std::vector<std::string> notes;
  for (const EngineReport& e : c.engines) {
    if (e.role != "candidate" || !e.ms_per_tok || e.ms_per_tok->mean >= from || is_quantised(e))
      continue;
    const double to = e.ms_per_tok->mean;
    std::string text =
        fmt::format("from {} ({} ms/tok) to {} ({}): the card is idle between {}'s launches for {}",
                    engine_label(*start), digits(from), engine_label(e), digits(to),
                    engine_label(*start), digits(std::max(0.0, from - works)));
    // The graphs on the way, the slowest first, and by how much each is faster than the one before.
    const EngineReport* before = start;
    for (const EngineReport* graph : traced_baselines(c, [=](const EngineReport& other) {
           const double ms = other.ms_per_tok->mean;
           return other.launch_trace->graph_launches > 0 && ms >= to && ms < from;
         })) {
      text += fmt::format(", {} {}{}{}", engine_label(*graph), before == start ? "saves " : "",
                          digits(before->ms_per_tok->mean - graph->ms_per_tok->mean),
                          before == start ? "" : " more");
      before = graph;
    }
    const double rest = (before == start ? works : before->ms_per_tok->mean) - to;
    const bool one_launch =
        was_traced(e) && e.launch_trace->kernels == 1 && e.launch_trace->graph_launches == 0;
    notes.push_back(fmt::format("{}, the rest is {} ms/tok{}", text, digits(rest),
                                one_launch ? ", in one launch" : ""));
  }
  return notes;
}

}  // namespace mkbench
