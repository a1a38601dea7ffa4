// Repeats parity's repeated prompts once more, in processes that have done nothing else.
#pragma once

#include <functional>
#include <memory>

#include "harness/flow/job.h"
#include "harness/hosts/hosts.h"
#include "harness/report/report.h"

namespace mkbench {

// True if an engine's repeats are still to be compared with those of fresh processes.
inline bool waits_for_repeats(const EngineReport& e) {
  return e.parity && !e.parity->repeats_sha256.empty();
}

// Repeats the prompts of a case in fresh processes, which must give the bits in `report`; changes
// the verdict of engines for which they do not.
void repeat_in_fresh_processes(const CaseJob& job,
                               const std::function<std::unique_ptr<Hosts>()>& start,
                               const std::function<bool()>& stop, CaseReport& report);

}  // namespace mkbench
