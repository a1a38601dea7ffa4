// The worker's part of `mkbench selftest`.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/wire/channel.h"

namespace mkbench {

// Runs the lanes that `job` lists ("lanes": indices into fault_lanes(); "gpu") and sends what each
// showed. Ends early after an error of CUDA: the context serves nobody any more.
void run_selftest(const nlohmann::json& job, MessageSink& sink);

}  // namespace mkbench
