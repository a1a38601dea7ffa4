// `mkbench audit`, for the selftest that runs it.
#pragma once

#include <vector>

#include "harness/cli/plan_settings.h"
#include "harness/flow/audit.h"
#include "harness/hosts/machine.h"

namespace mkbench {

struct AuditSettings : PlanSettings {
  int tiles = 0;                     // tiles of weights to change in each part
  bool tiles_only = false;           // no counters
  bool decode_once = false;          // only one decode, for a profiler to count
  std::vector<std::string> tensors;  // parts of tensors' names; empty: all tensors
  std::string format;
  std::string out;  // empty: none
};

struct AuditedCase {
  CaseJob job;
  std::vector<EngineAudit> engines;
};

// Audits the candidates of the cases, one after another. l2_bytes: the card's; 0 on a CPU. `tell`
// is called with each result, and may be empty. Throws what load_model() throws, and Interrupted.
std::vector<AuditedCase> audit_cases(
    const std::vector<CaseJob>& jobs, const AuditSettings& settings, const Invocation& invocation,
    int64_t l2_bytes, Hosts& hosts,
    const std::function<void(const CaseJob&, const EngineAudit&)>& tell);

}  // namespace mkbench
