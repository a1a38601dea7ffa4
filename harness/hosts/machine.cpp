#include "harness/hosts/machine.h"

#include <fmt/format.h>

#include "harness/device/fitness.h"
#include "harness/device/host_machine.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

template <typename Answer>
std::optional<Answer> try_to_ask(HostLink& link, const ToHost& call, std::string& problem) {
  try {
    return ask<Answer>(link, call, kQuestion);
  } catch (const Error& error) {
    problem = error.what();
    return std::nullopt;
  }
}

// Whether the kernels and libtorch can use the GPU.
void judge_usability(const MachineFacts& facts, int gpu, MachineProbe& probe) {
  if (!facts.card) {
    probe.reason = facts.card_problem;
    probe.what_to_do = "see mkbench doctor";
    return;
  }
  const Usability usability = judge_device(facts.card->devices, gpu, facts.card->architectures);
  probe.reason = usability.reason;
  probe.what_to_do = usability.what_to_do;
  if (!usability.usable()) return;
  probe.usable = facts.torch && facts.torch->cuda_available;
  if (!facts.torch) {
    probe.reason = "libtorch: " + facts.torch_problem;
    probe.what_to_do = "see mkbench doctor";
  } else if (!probe.usable) {
    const std::string& cuda = facts.torch->cuda_version;
    probe.reason = fmt::format("libtorch {} cannot use the GPU (built for CUDA {})",
                               facts.torch->version, cuda.empty() ? "none" : cuda);
    probe.what_to_do = "install a torch wheel that fits the driver";
  }
}

}  // namespace

MachineFacts examine_machine(Hosts& hosts, const CardCall& call) {
  MachineFacts facts;
  HostLink& card = hosts.about_card();
  HostLink& torch = hosts.about_torch();  // starts while the first one is asked
  facts.card = try_to_ask<CardFacts>(card, call, facts.card_problem);
  // In compute mode "exclusive" libtorch can use the card only after the first host has left it.
  if (call.compute) hosts.end_idle(kJudgeName);
  TorchCall about_torch;
  if (call.compute) about_torch.compute_on = call.gpu;
  facts.torch = try_to_ask<TorchTold>(torch, about_torch, facts.torch_problem);
  return facts;
}

MachineProbe probe_of(const MachineFacts& facts, int gpu) {
  MachineProbe probe;
  judge_usability(facts, gpu, probe);
  const TimingConditions conditions = read_timing_conditions();
  probe.environment = {{"cpu", describe_cpu()}, {"conditions", to_json(conditions)}};
  probe.host_unfit = unfit_for_timing(conditions);
  if (facts.torch) {
    probe.environment["libtorch"] = {{"version", facts.torch->version},
                                     {"cuda", facts.torch->cuda_version},
                                     {"architectures", facts.torch->architectures}};
    probe.environment["eager_settings"] = facts.torch->settings;
  }
  if (!facts.card) return probe;
  const DeviceList& list = facts.card->devices;
  probe.environment["architectures"] = facts.card->architectures;
  probe.devices = list.devices;
  for (const RingObstacle& of : facts.card->ring_obstacles) {
    probe.ring_obstacles[of.model] = of.obstacle;
    probe.ring_paces[of.model] = of.pace;
  }
  if (const DeviceInfo* device = find_device(facts.card->devices, gpu)) {
    nlohmann::json card = to_json(*device);
    card["clock_setting"] = clock_setting(device->state);
    card["driver"] = list.driver_version;
    card["driver_cuda"] = cuda_version_text(list.driver_cuda_version);
    card["cuda_runtime"] = cuda_version_text(list.runtime_cuda_version);
    probe.environment["gpu"] = std::move(card);
    probe.l2_bytes = device->l2_bytes;
    probe.pin_gb_per_s = device->pin_gb_per_s;
    probe.exclusive = device->exclusive;
    probe.card_unfit = unfit_for_timing(device->state);
    probe.device = fmt::format("cuda:{} {}", gpu, device->name);
  }
  return probe;
}

}  // namespace mkbench
