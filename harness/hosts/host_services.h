// The services of a case, with engines in hosts.
#pragma once

#include "harness/flow/services.h"
#include "harness/hosts/hosts.h"

namespace mkbench {

// A call that took `here` by this process's clock and `there` by its host's. Throws Error(kIntegrity)
// where the host's interval does not lie inside this process's own.
TimedCall time_in_host(const TimedCall& here, const HostInterval& there);

// `hosts` must outlive the services.
FlowServices make_services(const CaseJob& job, Hosts& hosts);

}  // namespace mkbench
