#include "harness/host/cuda_program.h"

#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/snapshot.h"

namespace mkbench {

CardFacts card_facts(const CardCall& call) {
  CardFacts facts{list_devices(), plain_architectures(), {}, {}};
  const bool usable = judge_device(facts.devices, call.gpu, facts.architectures).usable();
  if (!usable) return facts;
  for (const std::string& model : call.models) {
    RingObstacle& of = facts.ring_obstacles.emplace_back(RingObstacle{model, ""});
    try {
      of.obstacle = ring_obstacle(model_config(resolve_model(model)), call.gpu);
    } catch (const std::exception& error) {
      // A later check refuses the model and names all of its faults.
      of.obstacle = error.what();
    }
  }
  if (call.compute) facts.check = check_device(call.gpu);
  return facts;
}

}  // namespace mkbench
