#include "harness/hosts/host_services.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "harness/device/host_machine.h"
#include "harness/device/ncu.h"
#include "harness/device/nvtx.h"
#include "harness/device/telemetry.h"
#include "harness/flow/observed.h"
#include "harness/hosts/card_sampler.h"
#include "harness/judge/findings.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/shared_snapshot.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

// A call's time here may exceed its time in the host by kSlackMs plus kSlackShare of the latter,
// because both processes may wait for a core.
constexpr double kSlackMs = 20, kSlackShare = 0.1;

std::vector<GreedyReference> read_references(const CaseJob& job, const std::string& name) {
  std::vector<GreedyReference> references;
  // --truth transformers for a model of mkbench's own families: the run computes the truth itself and
  // reads no reference, because the user asked for transformers' answers of now.
  const bool own = !job.model.is_outline || job.model.dequantised;
  if (job.model.truth == Truth::kTransformers && own) return references;
  // References that the user captured from these weights replace all others, also published ids.
  if (job.reference_dir.empty()) {
    for (const auto& path : find_users_references(job.model))
      references.push_back(read_reference(path));
    if (!references.empty()) return references;
  }
  const std::filesystem::path folder =
      job.reference_dir.empty() ? data_dir() : std::filesystem::path(job.reference_dir);
  for (const auto& path : find_references(folder, name))
    references.push_back(read_reference(path, job.reference_dir.empty()));
  return references;
}

// The GPU of a job as CUDA shows it now; nullopt if CUDA does not show it.
std::optional<DeviceInfo> card_of_job(const CaseJob& job, Hosts& hosts) {
  const auto facts = ask<CardFacts>(hosts.about_card(), CardCall{.gpu = job.gpu}, kQuestion);
  const DeviceInfo* device = find_device(facts.devices, job.gpu);
  return device != nullptr ? std::optional(*device) : std::nullopt;
}

// True if libtorch uses oneDNN's bf16 kernels, compiled for each shape: on x86 only with AVX-512.
// An EPYC without it took 243 to 257 MB less (3 runs) than the figures in compiled_bytes() sum to.
bool compiles_for_shapes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") != 0;
#else
  return true;
#endif
}

// Code and scratch that libtorch's bf16 kernels for CPUs (oneDNN) keep for every shape they have
// met: the process of eager on tiny grew by 78, 107, 181 and 326 MB over 48, 64, 128 and 207 cache
// lengths, and by 51 MB over 16 lengths behind a prefill of 599 rows (EPYC, libtorch 2.11). The
// truth's fp32 kernels and the fused attention of engines in Python (transformers 5.17) keep
// nothing per length. oneDNN keeps at most 1,024 kernels, two a length. The package of `compiled`
// with its run-time took 69 and 81 MB more than `graph` on tiny and tiny-untied.
int64_t compiled_bytes(const std::string& name, const CaseShapes& shapes) {
  constexpr int64_t kFirst = 20'000'000, kOfLength = 1'300'000, kOfPrefill = 4'000'000,
                    kOfPackage = 75'000'000;
  constexpr int kMostLengths = 512;
  if (name == "compiled") return kOfPackage;
  const bool python = host_kind(name) == HostKind::kPython;
  const EngineRun run = run_of(name);
  if (run.engine != kJudgeName && !python) return 0;
  const bool fp32 = run.precision == EngineRequest::Precision::kFp32;
  if (fp32 || python || !compiles_for_shapes()) return kFirst;
  return kFirst + kOfLength * std::min(shapes.lengths, kMostLengths) + kOfPrefill * shapes.prefills;
}

// What libtorch's libraries keep on a card beside the context: a process with them took 168 MB more
// than one without (H100, libtorch 2.11). Engines in Python use the same libraries.
int64_t library_bytes(const std::string& name) {
  constexpr int64_t kOfTorch = 168'000'000;
  const HostKind kind = host_kind(name);
  return kind == HostKind::kTorch || kind == HostKind::kPython ? kOfTorch : 0;
}

}  // namespace

TimedCall time_in_host(const TimedCall& here, const HostInterval& there) {
  const double begin_ms = static_cast<double>(there.begin) / 1e6;
  const double end_ms = static_cast<double>(there.end) / 1e6;
  if (begin_ms < here.begin_ms || end_ms > here.begin_ms + here.ms || end_ms < begin_ms) {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("the host's clock: its interval [{:.3f}, {:.3f}] ms is not inside that "
                            "of its parent, [{:.3f}, {:.3f}] ms",
                            begin_ms, end_ms, here.begin_ms, here.begin_ms + here.ms));
  }
  TimedCall timed{.begin_ms = begin_ms, .ms = there.ms(), .slack_ms = here.ms - there.ms()};
  if (timed.slack_ms > kSlackMs + kSlackShare * timed.ms) {
    timed.doubt = fmt::format("clocks disagree: {:.3f} ms around the call, {:.3f} ms in the host",
                              here.ms, timed.ms);
  }
  return timed;
}

// Reads the card during the timed calls of a case.
class HostServices::CardWatch {
 public:
  CardWatch(const CaseJob& job, Hosts& hosts) : job_(job), hosts_(hosts) {}

  // Must not be called inside a turn, because it asks a host which card the job uses.
  void watch(bool on) {
    on_ = on && job_.cuda();
    if (on_ && !looked_) start();
  }

  TimedCall time(Engine& engine, const std::function<void()>& call) {
    if (!on_ || !sampler_) return time_call_of(engine, call);
    sampler_->begin();
    TimedCall timed = time_call_of(engine, call);
    timed.card = sampler_->end();
    return timed;
  }

 private:
  static TimedCall time_call_of(Engine& engine, const std::function<void()>& call) {
    const TimedCall here = time_call(steady_seconds, call);
    return time_in_host(here, host_engine(engine).last_interval());
  }

  void start() {
    looked_ = true;
    const DeviceInfo card = card_of_job(job_, hosts_).value_or(DeviceInfo{});
    if (ReadCard read = card_reader(card.pci_bus_id))
      sampler_ = std::make_unique<CardSampler>(std::move(read));
  }

  const CaseJob& job_;
  Hosts& hosts_;
  bool on_ = false, looked_ = false;
  std::unique_ptr<CardSampler> sampler_;
};

HostServices::HostServices(const CaseJob& job, Hosts& hosts,
                           std::function<uint64_t(uint64_t bound)> random,
                           std::function<CpuReading()> cpu)
    : job_(job),
      hosts_(hosts),
      random_(std::move(random)),
      cpu_(std::move(cpu)),
      flush_{job.cuda(), job.gpu},
      watch_(std::make_unique<CardWatch>(job_, hosts_)) {
  hosts.hold_one(job.one_at_a_time);
  nvtx_level() = static_cast<NvtxLevel>(job.nvtx);
}
HostServices::~HostServices() = default;

StepReads HostServices::step_reads() const {
  const auto* taken = job_.model.dequantised ? hosts_.values_of(job_.model.folder) : nullptr;
  const bool declared = taken != nullptr && taken->declared;
  if (!job_.model.is_outline && !declared) return {};
  return hosts_.step_reads(judge_runs(job_).truth, job_.model.folder,
                           declared ? taken->values.file() : "");
}

ModelConfig HostServices::config(const Model& model) const {
  ModelConfig config = model_config(model);
  config.reads = step_reads();
  return config;
}

ModelWeights HostServices::load(const Model& model, int depth) const {
  ModelWeights weights = hosts_.load(model, depth);
  weights.config.reads = step_reads();
  return weights;
}

std::vector<GreedyReference> HostServices::references(const std::string& model_name) const {
  const auto known = references_.find(model_name);
  if (known != references_.end()) return known->second;
  return references_[model_name] = read_references(job_, model_name);
}

std::optional<Ratchet> HostServices::ratchet(const RatchetKey& key) const {
  return find_ratchet(data_root() / "reports" / "ratchet.json", key);
}

EngineRequest HostServices::on_device(EngineRequest request) const {
  request.cuda = job_.cuda();
  request.gpu = job_.gpu;
  request.spin_scale = job_.spin_scale;
  if (request.name == kRingName) request.settings = job_.ring_row;
  if (request.name == kCeilingName) request.reads = step_reads();
  const auto* taken = job_.model.dequantised ? hosts_.values_of(job_.model.folder) : nullptr;
  const std::string lines =
      hf_settings(job_, request.name, taken != nullptr ? taken->values.file() : "");
  if (!lines.empty()) request.settings += (request.settings.empty() ? "" : "\n") + lines;
  return request;
}

void HostServices::begin_values() const {
  hosts_.begin_values(judge_runs(job_).truth, job_.model.folder);
}

void HostServices::take_values(Engine& engine) const { hosts_.take_values(engine); }

std::optional<StatedWeights> HostServices::values_found() const {
  const auto* taken = job_.model.dequantised ? hosts_.values_of(job_.model.folder) : nullptr;
  if (taken == nullptr) return std::nullopt;
  if (!taken->told) hosts_.judge_values(judge_runs(job_).truth);
  return StatedWeights{taken->told->problem, taken->told->own,
                       taken->declared && step_reads().known()};
}

std::unique_ptr<Engine> HostServices::make_engine(const EngineRequest& request,
                                                  const ModelWeights& weights) const {
  // Found now, because no host can be asked which card it is while a call is awaited.
  if (job_.cuda() && !hosts_.card_busy)
    hosts_.card_busy = use_reader(card_of_job(job_, hosts_).value_or(DeviceInfo{}).pci_bus_id);
  return hosts_.open(on_device(request), weights);
}

void HostServices::expect(const std::vector<std::string>& names) const {
  for (const std::string& name : names) hosts_.expect(name);
}

EngineFacts HostServices::facts(Engine& engine) const {
  const HostEngine& held = host_engine(engine);
  const EngineCapabilities capabilities = held.capabilities();
  EngineFacts facts{.resolved_name = capabilities.name,
                    .device = capabilities.device,
                    .settings = held.settings(),
                    .process = held.link().facts()};
  facts.process.open_ms = held.open_ms();
  return facts;
}

// ncu runs mkbench-all, which holds all engines but those in Python, for one decode.
ByteCounts HostServices::count_bytes(const std::string& engine, int n) const {
  ByteCounts none;
  const std::string ncu = find_ncu();
  if (host_kind(engine) == HostKind::kPython) {
    none.problem = "ncu counts no engine in Python";
  } else if (ncu.empty()) {
    none.problem = "ncu (Nsight Compute) is neither on PATH nor beside the toolkit";
  }
  if (!none.problem.empty()) return none;
  return count_with_ncu(ncu,
                        {(program_folder() / "mkbench-all").string(),
                         "audit",
                         "--in-process",
                         "--decode-once",
                         "--device",
                         job_.device,
                         "--gpu",
                         std::to_string(job_.gpu),
                         "--engine",
                         engine,
                         "--model",
                         job_.model.name,
                         "--n-gen",
                         std::to_string(n),
                         "--n-depth",
                         std::to_string(job_.depth),
                         "--seed",
                         std::to_string(job_.prompt_seed),
                         "--timeout",
                         fmt::format("{}", hosts_.timeout_s()),
                         "--quiet"},
                        hosts_.timeout_s());
}

int64_t HostServices::bytes(const EngineRequest& request, const ModelConfig& config) const {
  try {
    const bool copies = !job_.cuda() && host_kind(request.name) == HostKind::kTorch;
    if (copies && !misaligned_)
      misaligned_ = is_analytic(job_.model.row) ? 0 : misaligned_bytes(job_.model.folder);
    return hosts_.bytes(on_device(request), config) + (copies ? *misaligned_ : 0);
  } catch (const Error&) {
    return 0;  // opening the engine fails too, and gives the verdict
  }
}

int64_t HostServices::process_bytes(const std::string& name, const CaseShapes& shapes) const {
  try {
    return flush_.cuda ? hosts_.context_bytes(name, flush_, [this] { return free_of_card(); }) +
                             library_bytes(name)
                       : hosts_.idle_bytes(name) + compiled_bytes(name, shapes);
  } catch (const Error&) {
    return 0;  // the failed start gives its engine's verdict
  }
}

int64_t HostServices::shared_bytes(const ModelConfig& config) const {
  if (job_.cuda()) return 0;
  const ModelShape& shape = config.shape;
  // A call's logits lie twice in memory: in the arena, and in this process.
  const int64_t row = shape.vocab * int64_t{sizeof(float)};
  const int64_t observed = job_.observed ? std::min(kMostLogitBytes, job_.n_gen * row) : 0;
  const int64_t logits = std::max(kMaxLogitSteps * row, observed);
  const int64_t values = config.is_outline() ? config.outline_values : config.weight_bytes() / 2;
  const int64_t stated = job_.model.dequantised ? values * static_cast<int64_t>(sizeof(float)) : 0;
  return resident_bytes(getpid()) + config.weight_bytes() + 2 * logits + stated;
}

int64_t HostServices::free_of_card() const {
  const std::optional<DeviceInfo> card = card_of_job(job_, hosts_);
  return card ? card->free_bytes : 0;
}

int64_t HostServices::free_bytes() const {
  const int64_t free = job_.cuda() ? free_of_card() : host_free_bytes();
  if (free <= 0) return 0;
  return free + (job_.cuda() ? hosts_.held_context_bytes() : hosts_.resident_bytes());
}

int64_t HostServices::host_free_bytes() const { return mkbench::host_free_bytes(); }

int64_t HostServices::held_bytes() const {
  if (!job_.cuda()) return hosts_.resident_bytes();
  try {
    const std::optional<DeviceInfo> card = card_of_job(job_, hosts_);
    return card ? card->total_bytes - card->free_bytes : 0;
  } catch (const Error&) {
    return 0;  // the call that needs this host reports it
  }
}

TimedCall HostServices::timed(Engine& engine, const std::function<void()>& call) const {
  const CpuReading before = cpu_();
  TimedCall timed = watch_->time(engine, call);
  pressure_.add(before, cpu_());
  return timed;
}

void HostServices::watch_card(bool on) const { watch_->watch(on); }

RangeGuard HostServices::range(const char* name) const { return std::make_shared<NvtxRange>(name); }

void HostServices::label_next(Engine& engine, const RangeLabel& label) const {
  if (job_.nvtx != NvtxMode::kOff) host_engine(engine).label_next(label, job_.watched);
}

}  // namespace mkbench
