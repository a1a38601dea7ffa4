// The services of a case as functions that a test sets one by one; those that stay unset do nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/services.h"

namespace mkbench::testing {

struct ServiceScripts {
  Now now = steady_seconds;
  std::function<bool()> stop = [] { return false; };
  std::function<uint64_t(uint64_t)> random = random_below;
  std::function<ModelConfig(const std::string&)> config;
  std::function<ModelWeights(const std::string&, int)> load;
  std::function<std::vector<GreedyReference>(const std::string&)> references;
  std::function<std::optional<Ratchet>(const RatchetKey&)> ratchet = [](auto&) {
    return std::nullopt;
  };
  std::function<std::unique_ptr<Engine>(const EngineRequest&, const ModelWeights&)> make_engine;
  std::function<void(const std::vector<std::string>&)> expect = [](auto&) {};
  std::function<void(const std::string&)> end_process = [](auto&) {};
  std::function<EngineFacts(Engine&)> facts;
  std::function<std::string(Engine&, Ablation)> ablate;
  std::function<void()> begin_values;
  std::function<void(Engine&)> take_values;
  std::function<std::optional<StatedWeights>()> values_found = [] { return std::nullopt; };
  std::function<LaunchTrace(Engine&, int)> trace;
  std::function<ByteCounts(const std::string&, int)> count_bytes;
  std::function<int64_t(const EngineRequest&, const ModelConfig&)> bytes;
  std::function<int64_t(const std::string&, const CaseShapes&)> process_bytes = [](auto&, auto&) {
    return 0;
  };
  std::function<int64_t(const ModelConfig&)> shared_bytes = [](auto&) { return 0; };
  std::function<int64_t()> free_bytes;
  std::function<int64_t()> host_free_bytes = [] { return int64_t{1} << 40; };
  std::function<int64_t()> held_bytes = [] { return 0; };
  std::function<void()> begin_timing = [] {};
  std::function<void(Engine&)> take_turn = [](auto&) {};
  std::function<std::string(Engine&)> end_turn = [](auto&) { return ""; };
  std::function<TimedCall(Engine&, const std::function<void()>&)> timed;
  std::function<void(bool)> watch_card = [](bool) {};
  std::function<RangeGuard(const char*)> range = [](auto*) { return RangeGuard(); };
  std::function<void(Engine&, const RangeLabel&)> label_next = [](auto&, auto&) {};
};

// Calls the scripts as they stand at the time of the call.
class ScriptedServices : public ServiceScripts {
 public:
  ScriptedServices() = default;
  ScriptedServices(const ScriptedServices& other) : ServiceScripts(other) {}
  ScriptedServices& operator=(const ScriptedServices&) = delete;

  operator const FlowServices&() const { return calls_; }  // NOLINT(google-explicit-constructor)

 private:
  class Calls final : public FlowServices {
   public:
    explicit Calls(const ServiceScripts& scripts) : on_(scripts) {}

    double now() const override { return on_.now(); }
    bool stop() const override { return on_.stop(); }
    uint64_t random(uint64_t bound) const override { return on_.random(bound); }
    ModelConfig config(const Model& model) const override { return on_.config(model.name); }
    ModelWeights load(const Model& model, int depth) const override {
      ModelWeights weights = on_.load(model.name, depth);
      weights.salt = model.salt;
      return weights;
    }
    std::vector<GreedyReference> references(const std::string& name) const override {
      return on_.references(name);
    }
    std::optional<Ratchet> ratchet(const RatchetKey& key) const override {
      return on_.ratchet(key);
    }
    std::unique_ptr<Engine> make_engine(const EngineRequest& r,
                                        const ModelWeights& w) const override {
      return on_.make_engine(r, w);
    }
    void expect(const std::vector<std::string>& names) const override { on_.expect(names); }
    void end_process(const std::string& name) const override { on_.end_process(name); }
    EngineFacts facts(Engine& engine) const override { return on_.facts(engine); }
    std::string ablate(Engine& engine, Ablation ablation) const override {
      return on_.ablate(engine, ablation);
    }
    void begin_values() const override { on_.begin_values(); }
    void take_values(Engine& engine) const override { on_.take_values(engine); }
    std::optional<StatedWeights> values_found() const override { return on_.values_found(); }
    LaunchTrace trace(Engine& engine, int n) const override { return on_.trace(engine, n); }
    ByteCounts count_bytes(const std::string& engine, int n) const override {
      return on_.count_bytes(engine, n);
    }
    int64_t bytes(const EngineRequest& r, const ModelConfig& c) const override {
      return on_.bytes(r, c);
    }
    int64_t process_bytes(const std::string& name, const CaseShapes& shapes) const override {
      return on_.process_bytes(name, shapes);
    }
    int64_t shared_bytes(const ModelConfig& config) const override {
      return on_.shared_bytes(config);
    }
    int64_t free_bytes() const override { return on_.free_bytes(); }
    int64_t host_free_bytes() const override { return on_.host_free_bytes(); }
    int64_t held_bytes() const override { return on_.held_bytes(); }
    void begin_timing() const override { on_.begin_timing(); }
    void take_turn(Engine& engine) const override { on_.take_turn(engine); }
    std::string end_turn(Engine& engine) const override { return on_.end_turn(engine); }
    TimedCall timed(Engine& engine, const std::function<void()>& call) const override {
      return on_.timed(engine, call);
    }
    void watch_card(bool on) const override { on_.watch_card(on); }
    RangeGuard range(const char* name) const override { return on_.range(name); }
    void label_next(Engine& engine, const RangeLabel& label) const override {
      on_.label_next(engine, label);
    }

   private:
    const ServiceScripts& on_;
  };

  const Calls calls_{*this};
};

}  // namespace mkbench::testing
