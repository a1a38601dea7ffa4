// The timeline of a plugin: the spans in which a decode recorded what each thread block did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/engine_abi.h"
#include "references/timeline.h"

namespace mkbench {

// The decode that filled in the spans. A phase's number of spans tells the step of each of them.
struct SpannedDecode {
  int steps = 0;
  int layers = 0;  // of the model
};

// Leaves out unwritten spans, checks the others, reads role and kind from the phases' names
// (engine_abi.h) and finds step and layer. `phase_name` may be null, or return null: the phase is
// then named by its number. Throws Error(kRuntime) whose message begins with `who`.
Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t), const SpannedDecode& decode);

}  // namespace mkbench
