#include "harness/host/cuda_program.h"

#include <algorithm>

#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "kernels/ring/tuning.h"
#include "references/snapshot.h"

namespace mkbench {

CardFacts card_facts(const CardCall& call) {
  CardFacts facts{list_devices(), plain_architectures(), {}, {}};
  const bool usable = judge_device(facts.devices, call.gpu, facts.architectures).usable();
  if (!usable) return facts;
  auto& devices = facts.devices.devices;
  DeviceInfo& card = *std::find_if(devices.begin(), devices.end(),
                                   [&](const DeviceInfo& d) { return d.index == call.gpu; });
  for (const std::string& model : call.models) {
    RingObstacle& of = facts.ring_obstacles.emplace_back(RingObstacle{model, "", ""});
    try {
      const ModelConfig config = model_config(resolve_model(model));
      of.obstacle = ring_obstacle(config, call.gpu);
      if (of.obstacle.empty())
        of.pace = ring::tuning_for(card.name, card.sm_major, config.shape).chosen_by;
    } catch (const std::exception& error) {
      // A later check refuses the model and names all of its faults.
      of.obstacle = error.what();
    }
  }
  if (call.compute) {
    facts.check = check_device(call.gpu);
    read_busy_memory_clock(card.pci_bus_id, card.state, [&] { check_device(call.gpu); });
  }
  return facts;
}

}  // namespace mkbench
