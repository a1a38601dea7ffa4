// The services of a case, with engines in hosts.
#pragma once

#include "harness/flow/services.h"
#include "harness/parent/hosts.h"

namespace mkbench {

// `hosts` must outlive the services.
FlowServices make_services(const CaseJob& job, Hosts& hosts);

}  // namespace mkbench
