// One case from loading to the last sample: memory, weights, references, the gates of the judge and
// of each other engine, and then the timed part. All results are sent to an EventSink.
#pragma once

#include <map>
#include <string>

#include "harness/flow/case_memory.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/judge/repeats.h"

namespace mkbench {

// By candidate, the sha256 of its ids and logits on the repeated prompts, or why it has none.
using RepeatHashes = std::map<std::string, FreshRun>;

// Runs the repeated prompts; the services must make engines in fresh processes.
RepeatHashes hash_case_repeats(const CaseJob& job, const FlowServices& services, EventSink& sink);

// Runs the case. Every failure becomes a verdict (on an engine or on the whole case);
// after Ctrl-C the last event is CaseInterrupted, else Done.
void run_case(const CaseJob& job, const FlowServices& services, EventSink& sink);

}  // namespace mkbench
