// Settings and entry of `mkbench audit`, which `mkbench selftest --timing` runs too.
#pragma once

#include <vector>

#include "harness/cli/plan_settings.h"
#include "harness/flow/audit.h"
#include "harness/hosts/machine.h"

namespace mkbench {

struct AuditSettings : PlanSettings {
  int tiles = 0;                     // tiles to change in the layers, and as many in the head
  bool tiles_only = false;           // do not count bytes by ncu
  bool by_tensor = false;            // a part for each kind of tensor
  bool decode_once = false;          // only one decode, for a profiler to count
  std::vector<std::string> tensors;  // parts of tensors' names; empty: all tensors
  std::string format;
  std::string out;  // empty: none
};

struct AuditedCase {
  CaseJob job;
  std::vector<EngineAudit> engines;
};

// Audits the candidates of the cases, one after another, and calls `tell`, unless empty, with each
// result. Throws like load_model(), and Interrupted.
std::vector<AuditedCase> audit_cases(
    const std::vector<CaseJob>& jobs, const AuditSettings& settings, const Invocation& invocation,
    Hosts& hosts, const std::function<void(const CaseJob&, const EngineAudit&)>& tell);

}  // namespace mkbench
