// A sample of the ceiling: passes over the steps of a case, until they have taken long enough.
#pragma once

#include <functional>
#include <string>

#include "harness/measure/sample.h"

namespace mkbench {

// A sample of the ceiling ends after kCeilingMs or kCeilingPasses passes.
inline constexpr double kCeilingMs = 20;
inline constexpr int kCeilingPasses = 100;

// `pass` times the steps of the case once: it fills in tokens, start_ms and times of a sample, and
// returns why these times may be wrong, or an empty string. A doubtful pass is repeated; repeated
// doubts throw Error(kIntegrity). The returned sample sums the tokens and times of all passes.
Sample ceiling_sample(const std::function<std::string(Sample&)>& pass);

}  // namespace mkbench
