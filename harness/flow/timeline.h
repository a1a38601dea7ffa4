// `mkbench profile --timeline`: one engine records what its blocks do. Nothing is judged.
#pragma once

#include <string>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/report/timeline_text.h"
#include "references/timeline.h"

namespace mkbench {

struct RecordedDecode {
  std::string resolved;  // name that the engine reports
  Timeline timeline;     // of the last decode of n_gen tokens
  ObserverCost cost;
};

// Opens the engine, prefills the timed prompt, decodes job.warmup times each with and without
// recording, then `pairs` times without and with it in turn, from the same KV rows. Throws
// Error(kRuntime) if the engine offers no timeline, the engine's own errors, and Interrupted.
RecordedDecode record_timeline(const CaseJob& job, const CaseEngine& engine,
                               const FlowServices& services, int pairs);

}  // namespace mkbench
