// A warm-up that ends when the engine's time and clock have settled.
#pragma once

#include <functional>

#include "harness/judge/budget.h"
#include "harness/measure/warm_up.h"

namespace mkbench {

struct WarmRun {
  double ms = 0;
  double sm_ghz = 0;  // 0: not known
};

// Runs n units of work (tokens, or a whole prefill as one) and times the engine's call alone.
using RunUnits = std::function<WarmRun(int units)>;

// Runs up to `units` at a time, fewer if these would take more than half a window, until two
// windows agree (measure/warm_up.h). Windows and limit are seconds of `now_s`, so time between the
// calls counts too; windows are compared by the time per unit of the calls alone. The first run
// only measures the pace and belongs to no window.
WarmUp warm_up(int units, const RunUnits& run, const Now& now_s);

}  // namespace mkbench
