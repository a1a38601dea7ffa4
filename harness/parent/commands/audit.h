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

// Audits the candidates of the cases, one after another. l2_bytes: of the card; 0 on a CPU. `tell`
// gets each result; it may be empty. Throws what the weights throw, and Interrupted.
std::vector<AuditedCase> audit_cases(
    const std::vector<CaseJob>& jobs, const Options& options, const Invocation& invocation,
    int64_t l2_bytes, Hosts& hosts,
    const std::function<void(const CaseJob&, const EngineAudit&)>& tell);

}  // namespace mkbench
