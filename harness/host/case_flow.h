// One case from loading to the last sample: memory, weights, references, the gates of the judge and of
// each other engine, and then the clock. Results leave as messages, whatever carries them.
#pragma once

#include <cstdint>

#include "harness/host/services.h"
#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

struct CaseMemory {
  int64_t needed = 0;  // by all engines of the case, and by the runs that judge them
  int64_t free = 0;    // of the job's device; 0 where it cannot be asked
};

// Bytes of the job's device that the case will take, and what is free now. `config` may be a
// planned one.
CaseMemory case_memory(const CaseJob& job, const FlowServices& services, const ModelConfig& config);

// What a fresh process says of the repeated prompts. Engine errors pass through.
RepeatsAnswer hash_case_repeats(const CaseJob& job, const FlowServices& services,
                                MessageSink& sink);

// Runs the case. Every failure becomes a message (a verdict on an engine or on the whole case);
// after Ctrl-C the last message says "interrupted", else "done".
void run_case(const CaseJob& job, const FlowServices& services, MessageSink& sink);

}  // namespace mkbench
