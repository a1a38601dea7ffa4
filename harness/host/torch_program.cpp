#include "harness/host/torch_program.h"

#include "baselines/eager.h"

namespace mkbench {

TorchTold torch_told() {
  const TorchFacts facts = torch_facts();
  return {.version = facts.version,
          .cuda_version = facts.cuda_version,
          .architectures = facts.architectures,
          .settings = eager_settings(),
          .cuda_available = facts.cuda_available};
}

}  // namespace mkbench
