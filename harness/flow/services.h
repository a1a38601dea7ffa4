// The services that a case is given: CaseServices (models, references, engines, memory) and
// ClockServices (turns of the engines, timed calls). harness/hosts implements both with engines in
// processes; tests implement them with scripts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/flow/job.h"
#include "harness/flow/late_ids.h"
#include "harness/judge/budget.h"
#include "harness/judge/ratchet.h"
#include "harness/measure/byte_counts.h"
#include "harness/measure/launch_trace.h"
#include "harness/measure/range_label.h"
#include "harness/measure/telemetry.h"
#include "references/engine_maker.h"
#include "references/greedy_reference.h"

namespace mkbench {

// A named time range that a profiler shows; ends with the object.
using RangeGuard = std::shared_ptr<void>;

struct TimedCall {
  double begin_ms = 0;  // CLOCK_MONOTONIC
  double ms = 0;
  double slack_ms = 0;  // time that the caller measured beyond `ms`: the way to the engine and back
  // Set if the slack is longer than crossing to a process explains; the sample is then repeated.
  std::string doubt{};
  std::optional<Telemetry> card{};  // the card during the call; absent if it was not watched
};

// How long the call takes by the clock `now`.
TimedCall time_call(const Now& now, const std::function<void()>& call);

// Number of different shapes that a case makes an engine compute: cache lengths at which it
// decodes, and lengths of its prefills.
struct CaseShapes {
  int lengths = 0, prefills = 0;
};

// What was found of the values that an engine says its weights stand for.
struct StatedWeights {
  std::string problem;    // why they cannot be right; empty: nothing was found
  bool own = false;       // the engine has quantised weights that the model stores whole
  bool declared = false;  // and says how it keeps each: config() then tells what a step reads
};

class CaseServices {
 public:
  virtual ~CaseServices() = default;

  // Seconds. The clock for a case's decisions: budgets, warm-ups, blocks by time, forecasts.
  virtual double now() const = 0;
  virtual bool stop() const = 0;  // true after Ctrl-C
  // A profiler's range; `name` is a string literal.
  virtual RangeGuard range(const char* name) const = 0;
  // A number below `bound`, for late ids and for choosing the samples that get a state receipt: no
  // engine may foresee it.
  virtual uint64_t random(uint64_t bound) const = 0;

  virtual ModelConfig config(const Model& model) const = 0;
  // Weights of a model; `depth` chooses the lag set if the name is just `synthetic`.
  virtual ModelWeights load(const Model& model, int depth) const = 0;
  // All references of a model by the model's name, checked; empty if there is none.
  virtual std::vector<GreedyReference> references(const std::string& model_name) const = 0;
  // The entry for `key` in reports/ratchet.json; nullopt if there is none.
  virtual std::optional<Ratchet> ratchet(const RatchetKey& key) const = 0;

  // The caller sets name, max_context and fault, and for the ceiling depth and settings.
  virtual std::unique_ptr<Engine> make_engine(const EngineRequest& request,
                                              const ModelWeights& weights) const = 0;
  // Starts the processes of engines that will be made soon.
  virtual void expect(const std::vector<std::string>& names) const = 0;
  // Ends the process of an engine that is closed: the next make_engine() gets a fresh one.
  virtual void end_process(const std::string& name) const = 0;
  // What reports say of an engine that make_engine() has made.
  virtual EngineFacts facts(Engine& engine) const = 0;
  // Switches an engine to an ablation and back; its weights stay. Returns why the engine has no
  // ablations, or an empty string.
  virtual std::string ablate(Engine& engine, Ablation ablation) const = 0;
  // For --truth dequantised, in this order: finds which weights the model has, takes what an engine
  // says that they stand for, and judges that, once a run. The runs that judge, made from then on,
  // compute with it. take_values() throws what concerns the engine, Error(kBadInput) if it says nothing;
  // values_found() is nullopt before.
  virtual void begin_values() const = 0;
  virtual void take_values(Engine& engine) const = 0;
  virtual std::optional<StatedWeights> values_found() const = 0;
  // Decodes n tokens, untimed, and says what reached the card, or why that was not recorded. The
  // engine must be closed afterwards. Throws Error if its process has died.
  virtual LaunchTrace trace(Engine& engine, int n) const = 0;
  // Bytes that a decode of n tokens reads from the card's memory, by a profiler's counters in a
  // process of its own; `problem` says why there are none.
  virtual ByteCounts count_bytes(const std::string& engine, int n) const = 0;

  // Bytes of the job's device that make_engine() would take for this request.
  virtual int64_t bytes(const EngineRequest& request, const ModelConfig& config) const = 0;
  // Bytes of the job's device that the process of an engine takes besides the engine: on a CPU the
  // idle process and code compiled for the shapes of a case, on a GPU its context and libraries.
  virtual int64_t process_bytes(const std::string& name, const CaseShapes& shapes) const = 0;
  // Bytes of the job's device that are taken once for all engines: on a CPU by this process and by
  // the weights, which all engines read; on a GPU 0.
  virtual int64_t shared_bytes(const ModelConfig& config) const = 0;
  // Bytes of the job's device that the whole case may take: what is free now, plus what this run
  // holds already and case_memory() counts too (on a CPU all of it, on a GPU the contexts).
  virtual int64_t free_bytes() const = 0;
  // Bytes of the host's memory that are free.
  virtual int64_t host_free_bytes() const = 0;
  // Bytes taken now: on a CPU by this process and its hosts, on a GPU by all processes; 0: unknown.
  virtual int64_t held_bytes() const = 0;
};

class ClockServices {
 public:
  virtual ~ClockServices() = default;

  // Called once all engines are judged: closes what only judging needs.
  virtual void begin_timing() const = 0;
  // Called before each timed part of an engine. Afterwards nothing else runs, and L2 holds no data
  // of the preparation that must still be written back (l2_flush.h).
  virtual void take_turn(Engine& engine) const = 0;
  // Called after each timed part. Throws Error(kIntegrity) if the engine has left work behind.
  // Returns why the timed part does not count, or an empty string.
  virtual std::string end_turn(Engine& engine) const = 0;
  // Makes one call of the engine and says how long it took, by the harness's clock next to the
  // engine. Throws Error(kIntegrity) if that clock contradicts the clock of this process.
  virtual TimedCall timed(Engine& engine, const std::function<void()>& call) const = 0;
  // Sets whether the card is read during the timed calls that follow. Called outside of turns.
  virtual void watch_card(bool on) const = 0;
  // Sets what a profiler shows of the engine's next decode.
  virtual void label_next(Engine& engine, const RangeLabel& label) const = 0;
};

class FlowServices : public CaseServices, public ClockServices {};

// Functions that call `services`, which must outlive them.
inline Now clock_of(const CaseServices& services) {
  return [&services] { return services.now(); };
}
inline std::function<uint64_t(uint64_t bound)> draws_of(const CaseServices& services) {
  return [&services](uint64_t bound) { return services.random(bound); };
}

}  // namespace mkbench
