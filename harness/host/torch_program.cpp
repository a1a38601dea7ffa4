#include "harness/host/torch_program.h"

#include "baselines/eager.h"

namespace mkbench {

TorchTold torch_told(const TorchCall& call) {
  const TorchFacts facts = torch_facts();
  TorchTold told{.version = facts.version,
                 .cuda_version = facts.cuda_version,
                 .architectures = facts.architectures,
                 .settings = eager_settings(),
                 .cuda_available = facts.cuda_available,
                 .check = {}};
  if (call.compute_on && facts.cuda_available) {
    const TorchCheck check = check_torch(/*cuda=*/true, *call.compute_on);
    told.check = {.ok = check.ok, .got = check.got, .wanted = check.wanted, .error = check.error};
  }
  return told;
}

}  // namespace mkbench
