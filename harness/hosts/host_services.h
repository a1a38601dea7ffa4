// The services of a case, with engines in hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/cpu_pressure.h"
#include "harness/flow/interrupt.h"
#include "harness/flow/services.h"
#include "harness/hosts/hosts.h"
#include "references/snapshot.h"

namespace mkbench {

// A call that took `here` by this process's clock and `there` by its host's. Throws
// Error(kIntegrity) if the host's interval does not lie inside this process's own.
TimedCall time_in_host(const TimedCall& here, const HostInterval& there);

class HostServices final : public FlowServices {
 public:
  // `hosts` must outlive the services. `random`: a seeded source makes a run repeatable.
  HostServices(
      const CaseJob& job, Hosts& hosts,
      std::function<uint64_t(uint64_t bound)> random = random_below,
      std::function<CpuReading()> cpu = [] { return read_cpu(); });
  ~HostServices() override;

  double now() const override { return steady_seconds(); }
  bool stop() const override { return interrupt_count() > 0; }
  uint64_t random(uint64_t bound) const override { return random_(bound); }
  // With what a step of an outline reads.
  ModelConfig config(const Model& model) const override;
  ModelWeights load(const Model& model, int depth) const override;
  // Each model's files are read once.
  std::vector<GreedyReference> references(const std::string& model_name) const override;
  std::optional<Ratchet> ratchet(const RatchetKey& key) const override;
  std::unique_ptr<Engine> make_engine(const EngineRequest& request,
                                      const ModelWeights& weights) const override;
  void expect(const std::vector<std::string>& names) const override;
  void end_process(const std::string& name) const override { hosts_.end_process(name); }
  EngineFacts facts(Engine& engine) const override;
  std::string ablate(Engine& engine, Ablation ablation) const override {
    return host_engine(engine).ablate(ablation);
  }
  void begin_values() const override;
  void take_values(Engine& engine) const override;
  std::optional<StatedWeights> values_found() const override;
  LaunchTrace trace(Engine& engine, int n) const override { return hosts_.trace(engine, n); }
  ByteCounts count_bytes(const std::string& engine, int n) const override;
  int64_t bytes(const EngineRequest& request, const ModelConfig& config) const override;
  int64_t process_bytes(const std::string& name, const CaseShapes& shapes) const override;
  int64_t shared_bytes(const ModelConfig& config) const override;
  int64_t free_bytes() const override;
  int64_t host_free_bytes() const override;
  int64_t held_bytes() const override;

  void begin_timing() const override { hosts_.end_judges_runs(); }
  void take_turn(Engine& engine) const override { hosts_.take_turn(engine, flush_); }
  std::string end_turn(Engine& engine) const override { return hosts_.end_turn(engine, flush_); }
  TimedCall timed(Engine& engine, const std::function<void()>& call) const override;
  void watch_card(bool on) const override;
  RangeGuard range(const char* name) const override;
  void label_next(Engine& engine, const RangeLabel& label) const override;

  // Why the times of the calls so far are doubtful: what kept the CPUs from them, a clause each.
  std::vector<std::string> cpu_doubts() const { return pressure_.doubts(); }

 private:
  class CardWatch;

  EngineRequest on_device(EngineRequest request) const;
  int64_t free_of_card() const;
  StepReads step_reads() const;

  const CaseJob job_;
  Hosts& hosts_;
  const std::function<uint64_t(uint64_t bound)> random_;
  const std::function<CpuReading()> cpu_;
  const FlushCall flush_;
  const std::unique_ptr<CardWatch> watch_;
  mutable std::map<std::string, std::vector<GreedyReference>> references_;
  mutable CpuPressure pressure_;               // over the timed calls
  mutable std::optional<int64_t> misaligned_;  // misaligned_bytes() of the model, once asked for
};

}  // namespace mkbench
