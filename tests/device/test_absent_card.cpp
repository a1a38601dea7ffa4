// An RTX 5090 that is not there: what a driver would tell of it goes through the doctor, the plan of a
// run and the choice of ring's pace.
#include <algorithm>
#include <climits>

#include "harness/cli/plan.h"
#include "kernels/ring/tuning.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"
#include "tests/support/fake_nvml.h"

namespace mkbench::testing {
namespace {

// What NVML and CUDA tell of the card under work.
DeviceList driver_told() {
  fake_nvml().memory_clock_mhz = 13801;
  fake_nvml().max_memory_clock_mhz = 14001;
  fake_nvml().bus_bits = 512;
  DeviceList list = rented(13000, "580.65.06").devices;
  DeviceInfo& card = list.devices[0];
  card.sm_count = 170;
  card.l2_bytes = 96 << 20;
  card.pci_bus_id = kFakeCard;
  card.state = read_gpu_state(kFakeCard);
  card.pin_gb_per_s =
      pin_rate(1000 * card.state.max_memory_clock_mhz.value(), card.state.memory_bus_bits.value());
  return list;
}

struct Absent {
  DeviceList told = driver_told();
  ModelConfig config = model_config(resolve_model("synthetic"));
  const ring::Tuning& tuning = ring::tuning_for(told.devices[0].name, 12, config.shape);
};

TEST_CASE_METHOD(Absent, "an RTX 5090 is ready, and its pace is said to be a prediction") {
  DoctorReport report = healthy();
  report.devices = told;
  DoctorInputs in = inputs();
  in.ring_pace = tuning.chosen_by;
  judge_machine(in, report);
  CHECK(report.gpu_ready);
  const auto texts = doctor_lines(report);
  const auto shown = [&](const char* part) {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const std::string& text) { return text.find(part) != text.npos; });
  };
  CHECK(shown("sm_120"));
  CHECK(shown("memory at 13801 of 14001 MHz while it computes: its pins give 1767 of 1792 GB/s"));
  CHECK(shown("ring runs synthetic; its pace on this card: predicted, not measured"));
  CHECK(shown("mkbench tune"));
}

TEST_CASE_METHOD(Absent, "an RTX 5090 gets ring, with room for two copies in flight") {
  REQUIRE(ring::room_obstacle(config.shape, 12).empty());
  CHECK(ring::most_copies_in_flight(config.shape, 12) == 2);  // three slots
  ring::LaunchParams params{};
  ring::apply_tuning(tuning, 12, config.shape, params);
  CHECK(params.paces[0].until == INT_MAX);
  CHECK(params.paces[0].pace.copies_in_flight == 2);
  CHECK(params.head_pace.copies_in_flight == 2);

  CardFacts facts;
  facts.devices = told;
  facts.architectures = kAll;
  facts.ring_obstacles = {{"synthetic", "", std::string(tuning.chosen_by)}};
  const TorchTold torch{.version = "2.11.0",
                        .cuda_version = "13.0",
                        .architectures = "sm_90 sm_120",
                        .settings = "",
                        .cuda_available = true};
  const MachineProbe probe = probe_of({facts, "", torch, ""}, 0);
  CHECK(probe.usable);
  CHECK(probe.device == "cuda:0 NVIDIA GeForce RTX 5090");
  CHECK(probe.pin_gb_per_s == told.devices[0].pin_gb_per_s);
  const ParsedCommandLine line = parse_command_line({"--compare", "eager"});
  const RunPlan plan = plan_run(line.as<PlanSettings>(), probe);
  REQUIRE(plan.jobs.size() == 1);
  const auto& engines = plan.jobs[0].engines;
  CHECK(std::any_of(engines.begin(), engines.end(),
                    [](const CaseEngine& e) { return e.candidate && e.name == "ring"; }));
  // The machine of the test may give warnings of its own.
  CHECK(std::any_of(plan.warnings.begin(), plan.warnings.end(), [](const std::string& text) {
    return text ==
           "synthetic: ring's pace on this card is predicted, not measured: mkbench run --tune "
           "measures it first (0.6B: within a minute)";
  }));
}

}  // namespace
}  // namespace mkbench::testing
