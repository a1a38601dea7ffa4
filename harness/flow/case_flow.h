// One case from loading to the last sample: memory, weights, references, the gates of the judge and
// of each other engine, and then the timed part. All results are sent to an EventSink.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/judge/repeats.h"

namespace mkbench {

struct CaseMemory {
  int64_t needed = 0;  // for all engines of the case, and for the runs that judge them
  // The same, and the ceiling's copy of what it reads, where the job has one.
  int64_t with_ceiling = 0;
  int64_t free = 0;  // on the job's device; 0: not known

  bool ceiling_fits() const { return free <= 0 || with_ceiling <= free; }
  // What the case will take: without a ceiling where its copy does not fit.
  int64_t taken() const { return ceiling_fits() ? std::max(needed, with_ceiling) : needed; }
};

// Bytes of the job's device that the case will take, and the bytes that are free now. The weights
// need not exist yet.
CaseMemory case_memory(const CaseJob& job, const FlowServices& services, const ModelConfig& config);

// By candidate, the sha256 of its ids and logits on the repeated prompts, or why it has none.
using RepeatHashes = std::map<std::string, FreshRun>;

// Runs the repeated prompts; the services must make engines in fresh processes.
RepeatHashes hash_case_repeats(const CaseJob& job, const FlowServices& services, EventSink& sink);

// Runs the case. Every failure becomes a verdict (on an engine or on the whole case);
// after Ctrl-C the last event is CaseInterrupted, else Done.
void run_case(const CaseJob& job, const FlowServices& services, EventSink& sink);

}  // namespace mkbench
