#include "harness/flow/timeline.h"

#include <memory>

#include "harness/flow/contestant.h"
#include "harness/flow/timed_truth.h"

namespace mkbench {
namespace {

// The time of a decode by the engine's nearest clock, or by the harness's next to it.
struct DecodeTime {
  double ms = 0;
  const char* clock = "";
};

DecodeTime nearest_time(const DecodeTimes& times, double harness_ms) {
  if (times.device_ms > 0) return {times.device_ms, "the kernel's own clock"};
  if (times.event_ms > 0) return {times.event_ms, "CUDA events around the launch"};
  return {harness_ms, "the harness's clock around the call"};
}

class Recording {
 public:
  Recording(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
            Engine& engine)
      : job_(job),
        services_(services),
        truth_(truth),
        engine_(engine),
        can_(engine.capabilities()),
        late_ids_(truth.late_ids, services.random) {
    start_afresh(engine, truth.prompt);
    if (can_.snapshots) start_ = engine.save();
  }

  DecodeTime decode() {
    if (services_.stop()) throw Interrupted{};
    const int32_t late = late_ids_.draw();
    if (can_.late_id) {
      start_again(engine_, start_, truth_.prompt);
    } else {
      start_afresh(engine_, truth_.ending_with(late));
    }
    services_.take_turn(engine_);
    const TimedCall call = services_.timed(engine_, [&] {
      can_.late_id ? engine_.decode_late(late, job_.n_gen) : engine_.decode(job_.n_gen);
    });
    return nearest_time(engine_.last_times(), call.ms);
  }

 private:
  const CaseJob& job_;
  const FlowServices& services_;
  const TimedTruth& truth_;
  Engine& engine_;
  const EngineCapabilities can_;
  LateIds late_ids_;
  Snapshot start_{};
};

void switch_on(Engine& engine) {
  if (engine.set_timeline(true)) return;
  throw Error(ErrorKind::kRuntime, engine.capabilities().name + ": it offers no timeline");
}

}  // namespace

RecordedDecode record_timeline(const CaseJob& job, const CaseEngine& engine,
                               const FlowServices& services, int pairs) {
  const ModelWeights weights = services.load(job.model, first_depth(job));
  const TimedTruth truth = find_timed_truth(job, weights);
  const int context = context_for(first_depth(job) + job.n_gen + 1, weights.config.max_positions);
  const std::unique_ptr<Engine> made =
      services.make_engine({.name = engine.name, .max_context = context}, weights);
  RecordedDecode recorded;
  recorded.resolved = made->capabilities().name;
  switch_on(*made);
  Recording recording(job, services, truth, *made);
  for (int run = 0; run < job.warmup; ++run) recording.decode();
  made->set_timeline(false);
  for (int run = 0; run < job.warmup; ++run) recording.decode();
  for (int pair = 0; pair < pairs; ++pair) {
    recorded.cost.without_ms.push_back(recording.decode().ms);
    switch_on(*made);
    const DecodeTime time = recording.decode();
    recorded.cost.with_ms.push_back(time.ms);
    recorded.cost.clock = time.clock;
    if (pair + 1 == pairs) recorded.timeline = made->timeline();
    made->set_timeline(false);
  }
  return recorded;
}

}  // namespace mkbench
