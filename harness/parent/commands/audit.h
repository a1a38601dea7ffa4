// `mkbench audit`, for the selftest that runs it.
#pragma once

#include <vector>

#include "harness/flow/audit.h"
#include "harness/parent/machine.h"
#include "harness/parent/options.h"

namespace mkbench {

struct AuditedCase {
  CaseJob job;
  std::vector<EngineAudit> engines;
};

// Audits the candidates of every case that the options plan, one after another. `tell` gets each
// result; it may be empty. Throws what the plan and the weights throw, and Interrupted.
std::vector<AuditedCase> audit_cases(
    const Options& options, const Invocation& invocation, const MachineProbe& probe, Hosts& hosts,
    const std::function<void(const CaseJob&, const EngineAudit&)>& tell);

}  // namespace mkbench
