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

using Json = nlohmann::json;

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
void measure_ceiling(const CaseJob& job, MessageSink& sink) {
  sink.send({{"type", "progress"}, {"stage", "read bandwidth"}, {"engine", ""}});
  const ReadBandwidth b = measure_read_bandwidth(job.gpu);
  sink.send({{"type", "ceiling"},
             {"read_gb_per_s", b.best_gb_per_s()},
             {"plain_gb_per_s", b.plain_gb_per_s},
             {"bulk_gb_per_s", b.bulk_gb_per_s},
             {"bulk_pattern", b.bulk_pattern},
             {"buffer_bytes", b.buffer_bytes},
             {"bytes_per_sample", b.bytes_per_sample},
             {"samples", b.samples}});
}

// Memory of a case, and the least time that its reads must take.
void plan_case(const CaseJob& job, MessageSink& sink) {
  const FlowServices services = make_services(job);
  const ModelConfig config = services.config(job.model);
  const CaseMemory memory = case_memory(job, services, config);
  const double read_rate = job.device == "cuda"
                               ? measure_read_bandwidth(job.gpu).best_gb_per_s() * 1e9
                               : host_read_bytes_per_second();
  const int engines = static_cast<int>(job.baselines.size() + job.candidates.size());
  const double bytes = static_cast<double>(config.shape.bytes_per_step(first_depth(job))) *
                       job.n_gen * (job.blocks + job.warmup) * engines;
  sink.send({{"type", "plan"},
             {"bytes_needed", memory.needed},
             {"bytes_free", memory.free},
             {"least_seconds", read_rate > 0 ? bytes / read_rate : 0}});
}

void examine_machine(const CaseJob& job, MessageSink& sink) {
  DoctorInputs inputs;
  const TorchFacts torch = torch_facts();
  inputs.gpu = job.gpu;
  inputs.our_architectures = plain_architectures();
  inputs.torch_version = torch.version;
  inputs.torch_cuda_version = torch.cuda_version;
  inputs.torch_architectures = torch.architectures;
  inputs.torch_cuda_available = torch.cuda_available;
  inputs.model = "synthetic";
  CaseJob main_job = job;
  main_job.model = inputs.model;
  main_job.device = "cuda";
  main_job.n_gen = 128;
  main_job.baselines = {"eager"};
  const FlowServices services = make_services(main_job);
  const ModelConfig config = services.config(main_job.model);
  inputs.ring_obstacle = ring_obstacle(config, job.gpu);
  main_job.candidates = {resolve_engine("megakernel", inputs.ring_obstacle.empty())};
  inputs.device_bytes_needed = case_memory(main_job, services, config).needed;
  inputs.host_bytes_needed = 2 * config.shape.parameters(config.tie_word_embeddings);
  const DoctorReport report = run_doctor(inputs);
  sink.send({{"type", "doctor"},
             {"lines", doctor_lines(report)},
             {"ready", report.gpu_ready},
             {"report", to_json(report)}});
}

}  // namespace

void do_job(const Json& json, MessageSink& sink) {
  if (json.value("kind", "") == kSelftestJob) return run_selftest(json, sink);
  const CaseJob job = json.get<CaseJob>();
  if (job.kind == "case") {
    run_case(job, make_services(job), sink);
    return;
  }
  try {
    if (job.kind == "probe") {
      sink.send(probe_machine(job.gpu, job.models));
    } else if (job.kind == "ceiling") {
      measure_ceiling(job, sink);
    } else if (job.kind == "plan") {
      plan_case(job, sink);
    } else if (job.kind == "repeats") {
      sink.send(
          {{"type", "repeats"}, {"hashes", hash_case_repeats(job, make_services(job), sink)}});
    } else if (job.kind == "tune") {
      tune_ring(job, sink);
    } else if (job.kind == "doctor") {
      examine_machine(job, sink);
    } else {
      throw Error(ErrorKind::kRuntime, "worker: unknown job '" + job.kind + "'");
    }
    sink.send({{"type", "done"}});
  } catch (const Error& error) {
    sink.send(
        {{"type", "error"}, {"kind", static_cast<int>(error.kind())}, {"message", error.what()}});
  } catch (const std::exception& error) {
    sink.send({{"type", "error"},
               {"kind", static_cast<int>(ErrorKind::kRuntime)},
               {"message", error.what()}});
  }
}

int worker_main(int job_fd, int message_fd) {
  install_interrupt_handlers();
  PipeSink sink(message_fd);
  const Json job = Json::parse(read_all(job_fd), nullptr, false);
  if (!job.is_object()) return 2;
  do_job(job, sink);
  // Not through the destructors of CUDA and libtorch: all was sent, and they may hang after a
  // fault.
  _exit(0);
}

}  // namespace mkbench
