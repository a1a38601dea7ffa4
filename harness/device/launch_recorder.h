// Records, through CUPTI's activity records, everything that this process hands to the card.
#pragma once

#include <functional>

#include "harness/measure/launch_trace.h"

namespace mkbench {

// Runs `work`, waits for the card, and sums up what `work` handed to the card through any library;
// the wait at the end does not count. If recording cannot begin (no GPU, a build without CUPTI's
// headers, no libcupti or one that is too old or refuses), `work` does not run. Then, and if
// recording fails later, the answer's `problem` says why. What `work` throws passes through.
//
// CUPTI stays attached to the process, which makes later launches slower: nothing may be timed in
// this process afterwards.
LaunchTrace record_launches(const std::function<void()>& work);

}  // namespace mkbench
