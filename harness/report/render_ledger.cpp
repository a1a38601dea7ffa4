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

// The fastest (without `fastest` the slowest) traced engine that `want` accepts; null if none.
template <typename Want>
const EngineReport* choose(const CaseReport& c, bool fastest, const Want& want) {
  const EngineReport* chosen = nullptr;
  for (const EngineReport& e : c.engines) {
    if (!was_traced(e) || !want(e)) continue;
    if (chosen == nullptr || (e.ms_per_tok->mean < chosen->ms_per_tok->mean) == fastest)
      chosen = &e;
  }
  return chosen;
}

}  // namespace

std::vector<std::string> ledger_notes(const CaseReport& c) {
  const EngineReport* start = choose(c, false, [](const EngineReport& e) {
    return e.role == "baseline" && e.launch_trace->graph_launches == 0;
  });
  if (start == nullptr) return {};
  const double from = start->ms_per_tok->mean;
  const double works = start->launch_trace->busy_ms / start->launch_trace->tokens;
  std::vector<std::string> notes;
  for (const EngineReport& e : c.engines) {
    if (e.role != "candidate" || !e.ms_per_tok || e.ms_per_tok->mean >= from || is_lossy(e))
      continue;
    const double to = e.ms_per_tok->mean;
    // The fastest CUDA-graph baseline whose time lies between the candidate's and `start`'s.
    const EngineReport* graph = choose(c, true, [=](const EngineReport& other) {
      return other.role == "baseline" && other.launch_trace->graph_launches > 0 &&
             other.ms_per_tok->mean >= to && other.ms_per_tok->mean < from;
    });
    std::string text =
        fmt::format("from {} ({} ms/tok) to {} ({}): the card is idle between {}'s launches for {}",
                    engine_label(*start), digits(from), engine_label(e), digits(to),
                    engine_label(*start), digits(std::max(0.0, from - works)));
    double rest = works - to;
    if (graph != nullptr) {
      text += fmt::format(", {} saves {}", engine_label(*graph),
                          digits(from - graph->ms_per_tok->mean));
      rest = graph->ms_per_tok->mean - to;
    }
    notes.push_back(fmt::format("{}, the rest is {} ms/tok", text, digits(rest)));
  }
  return notes;
}

}  // namespace mkbench
