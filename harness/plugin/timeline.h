// What each thread block of a plugin did when: the spans that a decode has filled in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/engine_abi.h"
#include "references/timeline.h"

namespace mkbench {

// The decode that has filled in the spans; their number tells which step a span belongs to.
struct SpannedDecode {
  int steps = 0;
  int layers = 0;  // of the model
};

// Leaves out what is unwritten, checks the rest, reads role and kind from the phases' names
// (engine_abi.h) and finds step and layer. `phase_name` may be null, or return null: the phase is
// then named by its number. Throws Error(kRuntime) that begins with `who`.
Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t), const SpannedDecode& decode);

}  // namespace mkbench
