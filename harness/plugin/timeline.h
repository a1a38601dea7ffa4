// What each thread block of a plugin did when: the spans that a decode has filled in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/engine_abi.h"
#include "references/timeline.h"

namespace mkbench {

// The decode that has filled the spans in: which spans a step has follows from how many there are.
struct SpannedDecode {
  int steps = 0;
  int layers = 0;  // of the model
};

// Leaves out what is unwritten, checks the rest, reads role and kind from the phases' names (engine_abi.h) and
// finds step and layer. `phase_name` may be null, and return null: the phase is its number then. Throws
// Error(kRuntime) that begins with `who`.
Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t), const SpannedDecode& decode);

}  // namespace mkbench
