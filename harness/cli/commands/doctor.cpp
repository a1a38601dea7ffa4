#include "harness/device/doctor.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/cli/plan_settings.h"
#include "harness/device/host_machine.h"
#include "harness/flow/case_flow.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/host_services.h"
#include "harness/hosts/machine.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"
#include "harness/report/verdict.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

struct DoctorSettings : CardSettings {
  bool strict = false;  // any problem is exit code 6
  std::string format;
};

std::vector<Flag<DoctorSettings>> doctor_flags() {
  using D = DoctorSettings;
  return {
      flag("strict", "Exit with 6 on any problem.", &D::strict),
      flag("python PATH",
           "The Python whose torch and transformers are examined; none = no Python [the one that "
           "mkbench was set up with].",
           &CommandSettings::python),
      format_flag(&D::format),
  };
}

constexpr char kModel[] = "synthetic";  // the default model on a GPU

// GPU memory that the default run takes, in bytes; 0 if the host that computes it fails.
int64_t device_bytes(const DoctorInputs& inputs, Hosts& hosts) {
  CaseJob job;
  job.gpu = inputs.gpu;
  job.model = resolve_model(kModel);
  job.device = "cuda";
  job.n_gen = 128;
  job.engines = {{.name = kJudgeName, .asked = "", .judges = true, .yardstick = true},
                 {.name = resolve_engine(kMegakernel, inputs.ring_obstacle.empty()),
                  .asked = kMegakernel,
                  .candidate = true}};
  try {
    return case_memory(job, HostServices(job, hosts), model_config(job.model)).needed;
  } catch (const Error&) {
    return 0;  // another finding says what is wrong with the host
  }
}

constexpr char kNoPython[] = "none";

// Examines the Python of --python. If libtorch did not report which architectures it has code for,
// asks the build's Python, whose torch has code for the same ones.
void look_at_python(const DoctorSettings& settings, DoctorInputs& inputs, DoctorReport& report) {
  const std::string own = own_python();
  const std::string script = (data_root() / "scripts" / "doctor_python.py").string();
  if (settings.python != kNoPython) {
    const std::string asked = settings.python.empty() ? own : settings.python;
    if (!settings.quiet) print_stderr("mkbench: looking at the packages of {}\n", asked);
    report.python = ask_python(asked, script, inputs.gpu);
  }
  if (!inputs.torch_problem.empty() || !inputs.torch_architectures.empty()) return;
  const bool asked_own = settings.python.empty() || settings.python == own;
  inputs.torch_architectures = architectures_of(
      report.python && asked_own ? *report.python
                                 : ask_python(own, script, inputs.gpu, /*architectures_only=*/true),
      inputs.torch_version);
}

void print_report(const DoctorReport& report, const std::string& format, int exit_code) {
  if (format == "json") {
    nlohmann::json all = to_json(report);
    all["exit_code"] = exit_code;
    fmt::print("{}\n", dump_readable(all));
    return;
  }
  const bool strict_would_fail = exit_code == 0 && report.problems() > 0;
  for (const std::string& line : doctor_lines(report, strict_would_fail)) fmt::print("{}\n", line);
}

// Asks the hosts about the machine. They have released the card when this returns.
void ask_hosts(const DoctorSettings& settings, const Invocation& invocation, DoctorInputs& inputs,
               DoctorReport& report) {
  Hosts hosts(invocation.start_host, settings.timeout_s);
  const MachineFacts facts =
      examine_machine(hosts, CardCall{.gpu = settings.gpu, .compute = true, .models = {kModel}});
  inputs.card_problem = facts.card_problem;
  inputs.torch_problem = facts.torch_problem;
  if (facts.card) {
    report.devices = facts.card->devices;
    inputs.our_architectures = facts.card->architectures;
    for (const RingObstacle& of : facts.card->ring_obstacles) {
      inputs.ring_obstacle = of.obstacle;
      inputs.ring_pace = of.pace;
    }
    report.checked = facts.card->check.has_value();
    if (report.checked) report.check = *facts.card->check;
  } else {
    report.devices.driver_version = driver_version();
  }
  if (facts.torch) {
    inputs.torch_version = facts.torch->version;
    inputs.torch_cuda_version = facts.torch->cuda_version;
    inputs.torch_architectures = facts.torch->architectures;
    inputs.torch_cuda_available = facts.torch->cuda_available;
    report.torch_check = facts.torch->check;
  }
  inputs.device_bytes_needed = facts.card && facts.torch ? device_bytes(inputs, hosts) : 0;
}

int doctor_command(const DoctorSettings& settings, const Invocation& invocation) {
  DoctorInputs inputs;
  inputs.gpu = settings.gpu;
  inputs.cpu_only = settings.device == DeviceChoice::kCpu;
  inputs.model = kModel;
  DoctorReport report;
  report.toolkit = find_toolkit();
  report.machine = read_host_machine(std::filesystem::current_path());
  ask_hosts(settings, invocation, inputs, report);
  const ModelConfig config = model_config(resolve_model(kModel));
  inputs.host_bytes_needed = config.weight_bytes();
  look_at_python(settings, inputs, report);
  if (interrupt_count() > 0) throw Interrupted();
  judge_machine(inputs, report);
  // A machine without a GPU can still run the host twin, so without --strict it fails only if
  // --device cuda asks for more.
  const bool fails = (settings.strict && report.problems() > 0) ||
                     (settings.device == DeviceChoice::kCuda && !report.gpu_ready);
  const int status = fails ? exit_code(Verdict::kUnsupportedDevice) : 0;
  print_report(report, settings.format, status);
  return status;
}

}  // namespace

CommandRow doctor_row() {
  return command_row<DoctorSettings>(
      "doctor", "what this machine has, and what is missing", "",
      flags_of<DoctorSettings>(device_flags(), card_flags(), in_process_flags(), doctor_flags()),
      nullptr, doctor_command);
}

}  // namespace mkbench
