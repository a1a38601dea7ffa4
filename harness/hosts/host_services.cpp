#include "harness/hosts/host_services.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "harness/device/host_machine.h"
#include "harness/device/nvtx.h"
#include "harness/device/telemetry.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/card_sampler.h"
#include "harness/judge/findings.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

// A call may wait for a core on its way to a host and back: up to this, and a tenth of its time.
constexpr double kSlackMs = 20, kSlackShare = 0.1;

std::vector<GreedyReference> read_references(const CaseJob& job, const std::string& name) {
  std::vector<GreedyReference> references;
  // A reference that was captured from these weights also replaces ids that others published.
  if (job.reference_dir.empty()) {
    for (const auto& path : find_users_references(resolve_model(job.model)))
      references.push_back(read_reference(path));
    if (!references.empty()) return references;
  }
  const std::filesystem::path folder =
      job.reference_dir.empty() ? data_dir() : std::filesystem::path(job.reference_dir);
  for (const auto& path : find_references(folder, name))
    references.push_back(read_reference(path, job.reference_dir.empty()));
  return references;
}

// The GPU of a job as CUDA shows it now; nothing without it.
std::optional<DeviceInfo> card_of_job(const CaseJob& job, Hosts& hosts) {
  const auto facts = ask<CardFacts>(hosts.about_card(), CardCall{.gpu = job.gpu}, kQuestion);
  const DeviceInfo* device = find_device(facts.devices, job.gpu);
  return device != nullptr ? std::optional(*device) : std::nullopt;
}

// True if libtorch uses oneDNN's bf16 kernels, which are compiled for each shape: on CPUs with AVX-512.
// On an EPYC without it three runs took 243 to 257 MB less than the figures of compiled_bytes() add up to.
bool compiles_for_shapes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") != 0;
#else
  return true;
#endif
}

// Code and scratch that libtorch's bf16 kernels for CPUs (oneDNN) keep for every shape that they have
// met: the process of eager on tiny grew by 78, 107, 181 and 326 MB over 48, 64, 128 and 207 cache
// lengths, and by 51 MB over 16 lengths behind a prefill of 599 rows (EPYC, libtorch 2.11). The
// truth's fp32 kernels keep none, and oneDNN keeps at most 1,024 kernels, two a length. Engines in
// Python call fused attention, which keeps none for a length either (transformers 5.17). The package
// of `compiled` with its run-time took 69 and 81 MB more than `graph` on tiny and tiny-untied.
int64_t compiled_bytes(const std::string& name, const CaseShapes& shapes) {
  constexpr int64_t kFirst = 20'000'000, kOfLength = 1'300'000, kOfPrefill = 4'000'000,
                    kOfPackage = 75'000'000;
  constexpr int kMostLengths = 512;
  if (name == "compiled") return kOfPackage;
  const bool python = host_kind(name) == HostKind::kPython;
  if (engine_of_run(name) != kJudgeName && !python) return 0;
  if (name == kTruthName || python || !compiles_for_shapes()) return kFirst;
  return kFirst + kOfLength * std::min(shapes.lengths, kMostLengths) + kOfPrefill * shapes.prefills;
}

// What libtorch's libraries keep on a card beside a context: its process took 168 MB more than one
// without them (H100, libtorch 2.11). Engines in Python compute by the same libraries.
int64_t library_bytes(const std::string& name) {
  constexpr int64_t kOfTorch = 168'000'000;
  const HostKind kind = host_kind(name);
  return kind == HostKind::kTorch || kind == HostKind::kPython ? kOfTorch : 0;
}

EngineFacts facts_of(const Engine& engine) {
  const EngineCapabilities capabilities = engine.capabilities();
  EngineFacts facts{.resolved_name = capabilities.name,
                    .device = capabilities.device,
                    .settings = "",
                    .process = {}};
  if (const auto* proxy = dynamic_cast<const HostEngine*>(&engine)) {
    facts.settings = proxy->settings();
    facts.process = proxy->link().facts();
    facts.process.open_ms = proxy->open_ms();
  }
  return facts;
}

TimedCall time_call_of(Engine& engine, const std::function<void()>& call) {
  const TimedCall here = time_call(steady_seconds, call);
  const auto* proxy = dynamic_cast<HostEngine*>(&engine);
  return proxy != nullptr ? time_in_host(here, proxy->last_interval()) : here;
}

// Reads the card during the timed calls of a case.
class CardWatch {
 public:
  CardWatch(const CaseJob& job, Hosts& hosts) : job_(job), hosts_(hosts) {}

  // Not inside a turn: a host is asked which card it is.
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
  void start() {
    looked_ = true;
    const DeviceInfo card = card_of_job(job_, hosts_).value_or(DeviceInfo{});
    if (ReadCard read = card_reader(card.pci_bus_id))
      sampler_ = std::make_unique<CardSampler>(std::move(read));
  }

  const CaseJob job_;
  Hosts& hosts_;
  bool on_ = false, looked_ = false;
  std::unique_ptr<CardSampler> sampler_;
};

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

FlowServices make_services(const CaseJob& job, Hosts& hosts) {
  hosts.hold_one(job.one_at_a_time);
  nvtx_level() = static_cast<NvtxLevel>(job.nvtx);
  const auto on_device = [job](EngineRequest request) {
    request.cuda = job.cuda();
    request.gpu = job.gpu;
    request.spin_scale = job.spin_scale;
    return request;
  };
  FlowServices services;
  services.config = model_config;
  services.load = [&hosts](const std::string& model, int depth) {
    return hosts.load(model, depth);
  };
  services.references = [job](const std::string& name) { return read_references(job, name); };
  services.make_engine = [on_device, &hosts](const EngineRequest& request,
                                             const ModelWeights& weights) {
    return hosts.open(on_device(request), weights);
  };
  services.ablate = [](const std::string& name, Engine& engine, Ablation ablation) -> std::string {
    auto* proxy = dynamic_cast<HostEngine*>(&engine);
    return proxy != nullptr ? proxy->ablate(ablation) : name + " has no ablations";
  };
  services.ratchet = [](const RatchetKey& key) {
    return find_ratchet(data_root() / "reports" / "ratchet.json", key);
  };
  services.bytes = [on_device, &hosts](const EngineRequest& request,
                                       const ModelConfig& config) -> int64_t {
    try {
      return hosts.bytes(on_device(request), config);
    } catch (const Error&) {
      return 0;  // opening the engine fails too, and is its own verdict
    }
  };
  const auto free_of_card = [job, &hosts]() -> int64_t {
    const std::optional<DeviceInfo> card = card_of_job(job, hosts);
    return card ? card->free_bytes : 0;
  };
  services.free_bytes = [job, free_of_card, &hosts]() -> int64_t {
    const int64_t free = job.cuda() ? free_of_card() : host_free_bytes();
    if (free <= 0) return 0;
    return free + (job.cuda() ? hosts.held_context_bytes() : hosts.resident_bytes());
  };
  const FlushCall flush{job.cuda(), job.gpu};
  services.process_bytes = [flush, free_of_card, &hosts](const std::string& name,
                                                         const CaseShapes& shapes) -> int64_t {
    try {
      return flush.cuda ? hosts.context_bytes(name, flush, free_of_card) + library_bytes(name)
                        : hosts.idle_bytes(name) + compiled_bytes(name, shapes);
    } catch (const Error&) {
      return 0;  // a process that does not start is the verdict of its engine
    }
  };
  // The logits of a call lie in the arena and in this process.
  services.shared_bytes = [job](const ModelConfig& config) -> int64_t {
    if (job.cuda()) return 0;
    const ModelShape& shape = config.shape;
    const int64_t logits = int64_t{kMaxLogitSteps} * shape.vocab * int64_t{sizeof(float)};
    return resident_bytes(getpid()) + 2 * shape.parameters(config.tie_word_embeddings) + 2 * logits;
  };
  services.end_process = [&hosts](const std::string& name) { hosts.end_process(name); };
  services.facts = facts_of;
  services.expect = [&hosts](const std::vector<std::string>& names) {
    for (const std::string& name : names) hosts.expect(name);
  };
  services.begin_timing = [&hosts] { hosts.end_judges_runs(); };
  services.take_turn = [flush, &hosts](Engine& engine) { hosts.take_turn(engine, flush); };
  services.end_turn = [flush, &hosts](Engine& engine) { return hosts.end_turn(engine, flush); };
  const auto watch = std::make_shared<CardWatch>(job, hosts);
  services.watch_card = [watch](bool on) { watch->watch(on); };
  services.timed = [watch](Engine& engine, const std::function<void()>& call) {
    return watch->time(engine, call);
  };
  services.trace = [&hosts](Engine& engine, int n) { return hosts.trace(engine, n); };
  services.range = [](const char* name) -> RangeGuard { return std::make_shared<NvtxRange>(name); };
  if (job.nvtx != NvtxMode::kOff) {
    services.label_next = [watched = job.watched](Engine& engine, const RangeLabel& label) {
      if (auto* proxy = dynamic_cast<HostEngine*>(&engine)) proxy->label_next(label, watched);
    };
  }
  services.stop = [] { return interrupt_count() > 0; };
  return services;
}

}  // namespace mkbench
