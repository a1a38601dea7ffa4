// Records, through CUPTI's activity records, everything that this process hands to the card.
#pragma once

#include <functional>

#include "harness/measure/launch_trace.h"

namespace mkbench {

// Runs `work`, waits for the card, and sums up what `work` handed to it, by whichever library; the
// wait at the end does not count. Where nothing can be recorded (no GPU, a build without CUPTI's
// headers, no libcupti or one that is too old or refuses), `problem` of the answer says why, and
// `work` has not run. What `work` throws passes through.
//
// CUPTI stays attached to the process, which makes later launches slower: nothing may be timed in
// this process afterwards.
LaunchTrace record_launches(const std::function<void()>& work);

}  // namespace mkbench
