// What a case needs from outside: weights, references, engines, memory. All of it is functions, so
// that tests can script them.
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
  double slack_ms = 0;  // time around the engine's call that was spent on the way to it and back
  // Set where the slack is more than crossing to another process explains; the sample is repeated.
  std::string doubt{};
  std::optional<Telemetry> card{};  // what the card did meanwhile, where it was watched
};

// How long the call takes by the clock `now`.
TimedCall time_call(const Now& now, const std::function<void()>& call);

// What a case makes an engine compute: cache lengths at which it decodes, and prefills, each counted
// once.
struct CaseShapes {
  int lengths = 0, prefills = 0;
};

struct FlowServices {
  // By this clock a case decides: budgets, warm-ups, blocks by time, forecasts.
  Now now = steady_seconds;
  std::function<ModelConfig(const std::string& model)> config;
  // Weights of a model; `depth` chooses the lag set of plain `synthetic`.
  std::function<ModelWeights(const std::string& model, int depth)> load;
  // All references of a model by the model's name, checked; empty if there is none.
  std::function<std::vector<GreedyReference>(const std::string& model_name)> references;
  // The caller sets name, max_context and fault of the request; the service fills in the rest.
  std::function<std::unique_ptr<Engine>(const EngineRequest&, const ModelWeights&)> make_engine;
  // Switches an engine to an ablation and back; its weights stay. Returns why the engine has no
  // ablations, or an empty string.
  std::function<std::string(const std::string& name, Engine&, Ablation)> ablate;
  // What reports/ratchet.json commits; empty where that file has no such entry.
  std::function<std::optional<Ratchet>(const RatchetKey&)> ratchet;
  // Bytes of the job's device that make_engine() would take for this request.
  std::function<int64_t(const EngineRequest&, const ModelConfig&)> bytes;
  // Bytes of the job's device that the process of an engine takes besides the engine: libraries and
  // the code that they compile for the shapes of a case, or a context on the card.
  std::function<int64_t(const std::string& name, const CaseShapes&)> process_bytes =
      [](const auto&, const auto&) { return int64_t{0}; };
  // Bytes of the job's device that are taken once, beside the engines: on a CPU this process, and
  // the weights, which all engines read.
  std::function<int64_t(const ModelConfig&)> shared_bytes = [](const auto&) { return int64_t{0}; };
  // Bytes of the job's device that the whole case may take: what is free now, and what processes of
  // this run hold and case_memory() counts once more (on a CPU all of it, on a GPU their contexts).
  std::function<int64_t()> free_bytes;
  // Ends the process of an engine that is closed: the next make_engine() gets a fresh one.
  std::function<void(const std::string& name)> end_process = [](const std::string&) {};
  // What reports say of an engine that make_engine() has made.
  std::function<EngineFacts(const Engine&)> facts;
  // Engines that will be made soon: their processes may start already.
  std::function<void(const std::vector<std::string>& names)> expect = [](const auto&) {};
  // Called once all engines are judged: what only judging needs is closed.
  std::function<void()> begin_timing = [] {};
  // Called before each timed part of an engine: nothing else runs, and no data of the preparation
  // waits in L2 to be written back (l2_flush.h).
  std::function<void(Engine&)> take_turn = [](Engine&) {};
  // Called after each timed part. Throws Error(kIntegrity) where the engine has left work behind.
  // Returns why what was timed does not count, else an empty string.
  std::function<std::string(Engine&)> end_turn = [](Engine&) { return std::string(); };
  // Makes one call of the engine and says how long it took, by the harness's clock next to the
  // engine. Throws Error(kIntegrity) where that clock contradicts the clock of this process.
  std::function<TimedCall(Engine&, const std::function<void()>& call)> timed;
  // Decodes n tokens, untimed, and says what reached the card, or why that was not recorded. The
  // engine must be closed afterwards. Throws Error where its process has died.
  std::function<LaunchTrace(Engine&, int n)> trace;
  std::function<RangeGuard(const char* name)> range;  // `name`: a string literal
  // What a profiler shows of the engine's next decode.
  std::function<void(Engine&, const RangeLabel&)> label_next = [](Engine&, const RangeLabel&) {};
  // Whether the card is read during the timed calls that follow. Called outside of turns.
  std::function<void(bool on)> watch_card = [](bool) {};
  std::function<bool()> stop;  // true after Ctrl-C
  // Late ids, and which samples get a state receipt: no engine may foresee them.
  std::function<uint64_t(uint64_t bound)> random = random_below;
};

}  // namespace mkbench
