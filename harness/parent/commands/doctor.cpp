#include "harness/device/doctor.h"

#include <fmt/format.h>

#include "harness/device/host_machine.h"
#include "harness/flow/case_flow.h"
#include "harness/parent/host_services.h"
#include "harness/parent/machine.h"
#include "harness/parent/options.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr char kModel[] = "synthetic";  // the default model on a GPU

// Bytes of the GPU that the default run takes; 0 where a host that would say so cannot start.
int64_t device_bytes(const DoctorInputs& inputs, Hosts& hosts) {
  CaseJob job;
  job.gpu = inputs.gpu;
  job.model = kModel;
  job.device = "cuda";
  job.n_gen = 128;
  job.engines = {{.name = kJudgeName, .asked = "", .judges = true, .yardstick = true},
                 {.name = resolve_engine(kMegakernel, inputs.ring_obstacle.empty()),
                  .asked = kMegakernel,
                  .candidate = true}};
  try {
    return case_memory(job, make_services(job, hosts), model_config(kModel)).needed;
  } catch (const Error&) {
    return 0;  // a finding of its own says what is wrong with the host
  }
}

}  // namespace

int doctor_command(const Options& options, const Invocation& invocation) {
  Hosts hosts(invocation.start_host, options.timeout_s);
  const MachineFacts facts =
      examine_machine(hosts, CardCall{.gpu = options.gpu, .compute = true, .models = {kModel}});
  DoctorInputs inputs;
  inputs.gpu = options.gpu;
  inputs.model = kModel;
  inputs.card_problem = facts.card_problem;
  inputs.torch_problem = facts.torch_problem;
  DoctorReport report;
  report.toolkit = find_toolkit();
  report.host_bytes_free = host_free_bytes();
  if (facts.card) {
    report.devices = facts.card->devices;
    inputs.our_architectures = facts.card->architectures;
    for (const RingObstacle& of : facts.card->ring_obstacles) inputs.ring_obstacle = of.obstacle;
    report.checked = facts.card->check.has_value();
    if (report.checked) report.check = *facts.card->check;
  }
  if (facts.torch) {
    inputs.torch_version = facts.torch->version;
    inputs.torch_cuda_version = facts.torch->cuda_version;
    inputs.torch_architectures = facts.torch->architectures;
    inputs.torch_cuda_available = facts.torch->cuda_available;
  }
  inputs.device_bytes_needed = facts.card && facts.torch ? device_bytes(inputs, hosts) : 0;
  const ModelConfig config = model_config(kModel);
  inputs.host_bytes_needed = 2 * config.shape.parameters(config.tie_word_embeddings);
  judge_machine(inputs, report);
  for (const std::string& line : doctor_lines(report)) fmt::print("{}\n", line);
  // A machine without a GPU can still run the host twin, so it only fails under --device cuda.
  return report.gpu_ready || options.device != DeviceChoice::kCuda
             ? 0
             : exit_code(Verdict::kUnsupportedDevice);
}

}  // namespace mkbench
