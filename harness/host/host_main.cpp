#include "harness/host/host_main.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "baselines/eager.h"
#include "harness/device/doctor.h"
#include "harness/device/roofline.h"
#include "harness/host/case_flow.h"
#include "harness/host/machine.h"
#include "harness/host/selftest_lanes.h"
#include "harness/host/services.h"
#include "harness/host/tune_ring.h"
#include "harness/wire/interrupt.h"
#include "harness/wire/job.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

std::string read_all(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
}

// The ceiling of the roofline, once a run.
CeilingAnswer answer(const CeilingJob& job, MessageSink& sink) {
  sink.send(StageProgress{.stage = "read bandwidth", .engine = ""});
  const ReadBandwidth b = measure_read_bandwidth(job.gpu);
  return {.read_gb_per_s = b.best_gb_per_s(),
          .plain_gb_per_s = b.plain_gb_per_s,
          .bulk_gb_per_s = b.bulk_gb_per_s,
          .bulk_pattern = b.bulk_pattern,
          .buffer_bytes = b.buffer_bytes,
          .bytes_per_sample = b.bytes_per_sample,
          .samples = b.samples};
}

PlanAnswer answer(const PlanJob& plan, MessageSink&) {
  const CaseJob& job = plan.of;
  const FlowServices services = make_services(job);
  const ModelConfig config = services.config(job.model);
  const CaseMemory memory = case_memory(job, services, config);
  const double read_rate = job.cuda() ? measure_read_bandwidth(job.gpu).best_gb_per_s() * 1e9
                                      : host_read_bytes_per_second();
  const double bytes = static_cast<double>(config.shape.bytes_per_step(first_depth(job))) *
                       job.n_gen * (job.blocks + job.warmup) *
                       static_cast<double>(job.engines.size());
  return {.bytes_needed = memory.needed,
          .bytes_free = memory.free,
          .least_seconds = read_rate > 0 ? bytes / read_rate : 0};
}

DoctorAnswer answer(const DoctorJob& job, MessageSink&) {
  DoctorInputs inputs;
  const TorchFacts torch = torch_facts();
  inputs.gpu = job.gpu;
  inputs.our_architectures = plain_architectures();
  inputs.torch_version = torch.version;
  inputs.torch_cuda_version = torch.cuda_version;
  inputs.torch_architectures = torch.architectures;
  inputs.torch_cuda_available = torch.cuda_available;
  inputs.model = "synthetic";
  CaseJob main_job;
  main_job.gpu = job.gpu;
  main_job.model = inputs.model;
  main_job.device = "cuda";
  main_job.n_gen = 128;
  const FlowServices services = make_services(main_job);
  const ModelConfig config = services.config(main_job.model);
  inputs.ring_obstacle = ring_obstacle(config, job.gpu);
  main_job.engines = {{.name = kJudgeName, .asked = "", .judges = true, .yardstick = true},
                      {.name = resolve_engine(kMegakernel, inputs.ring_obstacle.empty()),
                       .asked = kMegakernel,
                       .candidate = true}};
  inputs.device_bytes_needed = case_memory(main_job, services, config).needed;
  inputs.host_bytes_needed = 2 * config.shape.parameters(config.tie_word_embeddings);
  const DoctorReport report = run_doctor(inputs);
  return {.ready = report.gpu_ready, .lines = doctor_lines(report)};
}

ProbeAnswer answer(const ProbeJob& job, MessageSink&) { return probe_machine(job); }

RepeatsAnswer answer(const RepeatsJob& job, MessageSink& sink) {
  return hash_case_repeats(job.of, make_services(job.of), sink);
}

TuneAnswer answer(const TuneJob& job, MessageSink& sink) { return tune_ring(job, sink); }

// Jobs that are answered with one message.
template <typename Job>
void run_job(const Job& job, MessageSink& sink) {
  try {
    sink.send(answer(job, sink));
    sink.send(Done{});
  } catch (const Error& error) {
    sink.send(JobFailed{error.kind(), error.what()});
  } catch (const std::exception& error) {
    sink.send(JobFailed{ErrorKind::kRuntime, error.what()});
  }
}

void run_job(const CaseJob& job, MessageSink& sink) { run_case(job, make_services(job), sink); }
void run_job(const SelftestJob& job, MessageSink& sink) { run_selftest(job, sink); }

}  // namespace

void do_job(const ToHost& job, MessageSink& sink) {
  std::visit([&sink](const auto& one) { run_job(one, sink); }, job);
}

int worker_main(int job_fd, int message_fd) {
  install_interrupt_handlers();
  PipeSink sink(message_fd);
  const nlohmann::json job = nlohmann::json::parse(read_all(job_fd), nullptr, false);
  if (!job.is_object()) return 2;
  do_job(job_from_json(job), sink);
  // _exit() skips the destructors of CUDA and libtorch: all was sent, and they may hang after a
  // fault.
  _exit(0);
}

}  // namespace mkbench
