// The machine as a plan sees it, put together from the answers of hosts.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/machine.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_link.h"

namespace mkbench {
namespace {

using testing::FakeLink;

CardFacts good_card() {
  CardFacts card;
  DeviceInfo device;
  device.index = 1;
  device.name = "Some GPU";
  device.sm_major = 9;
  device.l2_bytes = 7;
  device.state.processes = {GpuProcess{}, GpuProcess{}};
  card.devices.devices = {device};
  card.devices.driver_cuda_version = card.devices.runtime_cuda_version = 13000;
  card.architectures = "90a";
  card.ring_obstacles = {{"synthetic", ""}, {"tiny", "hidden_size found 128"}};
  return card;
}

TEST_CASE("hosts that cannot start are problems of the machine, and the others are still asked") {
  Hosts hosts(
      [](HostKind kind, const std::string&) -> std::shared_ptr<HostLink> {
        auto link = std::make_shared<FakeLink>();
        link->answer = [kind](const ToHost&) -> std::optional<FromHost> {
          if (kind == HostKind::kTorch) throw Error(ErrorKind::kEnvUnfit, "libtorch.so: not found");
          return good_card();
        };
        return link;
      },
      300);
  const MachineFacts facts = examine_machine(hosts, CardCall{.gpu = 1});
  CHECK(facts.card.has_value());
  CHECK(facts.card_problem.empty());
  CHECK_FALSE(facts.torch.has_value());
  CHECK(facts.torch_problem == "libtorch.so: not found");
  const MachineProbe probe = probe_of(facts, 1);
  CHECK_FALSE(probe.usable);
  CHECK_THAT(probe.reason, ContainsText("libtorch.so: not found"));
  CHECK(probe.what_to_do == "see mkbench doctor");
}

TEST_CASE("a GPU is usable where the kernels and libtorch can use it") {
  MachineFacts facts;
  facts.card = good_card();
  facts.torch = TorchTold{"2.11.0", "13.0", "sm_90", "pinned=1", true};
  const MachineProbe probe = probe_of(facts, 1);
  CHECK(probe.usable);
  CHECK(probe.reason.empty());
  CHECK(probe.device == "cuda:1 Some GPU");
  CHECK(probe.l2_bytes == 7);
  CHECK(probe.card_unfit == std::vector<std::string>{"2 other process(es) on the card"});
  CHECK(probe.environment["conditions"]["processors"].get<int>() > 0);
  CHECK(probe.ring_obstacles.at("tiny") == "hidden_size found 128");
  CHECK(probe.environment["libtorch"]["version"] == "2.11.0");
  CHECK(probe.environment["eager_settings"] == "pinned=1");
  CHECK(probe.environment["gpu"]["cuda_runtime"] == "13.0");

  CHECK_FALSE(probe_of(facts, 0).usable);
  CHECK_THAT(probe_of(facts, 0).reason, ContainsText("GPU 0"));
  facts.torch->cuda_available = false;
  CHECK_FALSE(probe_of(facts, 1).usable);
  CHECK_THAT(probe_of(facts, 1).reason, ContainsText("libtorch 2.11.0 cannot use the GPU"));
  facts.card.reset();
  facts.card_problem = "libcudart.so.13: cannot open shared object file";
  CHECK(probe_of(facts, 1).reason == facts.card_problem);
  CHECK_FALSE(probe_of(facts, 1).environment.contains("gpu"));
}

}  // namespace
}  // namespace mkbench
