// What each thread block of a plugin did when: the spans that a decode has filled in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "references/engine.h"
#include "references/engine_abi.h"

namespace mkbench {

struct Timeline {
  std::vector<mkbench_span> spans;             // by begin, then block
  std::map<int32_t, std::string> phase_names;  // of each phase in `spans`
};

// Decodes n steps with `engine`, a plugin with a timeline, and returns the spans of that decode, at
// most `room` of them. Throws Error(kRuntime) where the engine offers no timeline, and for a span
// that ends before it begins or has a negative block or phase; otherwise as decode() does.
Timeline take_timeline(Engine& engine, int n, int room);

// Leaves out what is unwritten, checks the rest and sorts it. `phase_name` may be null, and return
// null: the phase is its number then. Throws Error(kRuntime) that begins with `who`.
Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t));

}  // namespace mkbench
