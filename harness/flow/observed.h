// Observed blocks: in one block in eight a candidate's timed decode is repeated with logits, because
// an engine may do less where nobody looks. judge/observed.h compares the times.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "harness/flow/contestant.h"
#include "harness/flow/events.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"

namespace mkbench {

inline constexpr int kObservedShare = 8;  // one block in this many is observed
// Handing logits over is measured by pairs of decodes, without and with logits, of this many
// tokens: with fewer, what every decode pays once would count for each token.
inline constexpr int kHandoverTokens = 16, kHandoverPairs = 9;

// Logits of a longer decode are not asked for: they lie in memory up to three times.
inline constexpr int64_t kMostLogitBytes = int64_t{256} << 20;

class ObservedDecodes {
 public:
  // All arguments outlive the object.
  ObservedDecodes(const CaseJob& job, const FlowServices& services, int vocab, EventSink& sink)
      : job_(job), services_(services), vocab_(vocab), sink_(sink) {}

  // Measures what handing logits over costs the engine in this process, each decode after the
  // single id that `draw` gives: there an engine saves nothing by a short window or a cheap cache.
  // Empties the sequence.
  void measure_handover(Contestant& c, int process, const std::function<int32_t()>& draw);

  // Whether an engine's decodes are observed in `block`: in the first block of each process and in
  // a drawn one of each later eight. `of_process`: its number in its process.
  bool is_due(const Contestant& c, int process, int block, int of_process);

  // Times a decode with logits, after `begin` has set the engine to where a timed decode begins.
  void observe(Contestant& c, int process, int block, const std::function<void()>& begin);

 private:
  // Why this engine is not observed; empty if it is.
  std::string obstacle(const Contestant& c) const;
  // Milliseconds of a decode of n tokens; negative if the time is in doubt.
  double time(Engine& engine, int n, float* logits) const;

  const CaseJob& job_;
  const FlowServices& services_;
  const int vocab_;
  EventSink& sink_;
  std::map<std::string, int> measured_in_, warmed_in_;  // process, by engine
  std::map<int, bool> due_;                             // by block
};

}  // namespace mkbench
