#include "harness/flow/timeline.h"

#include "harness/flow/repeated_decode.h"
#include "harness/report/timeline_text.h"

namespace mkbench {
namespace {

// Time of a decode by the engine's clock nearest to the kernel, else by the harness's clock.
struct DecodeTime {
  double ms = 0;
  const char* clock = "";
};

DecodeTime nearest_time(const DecodeTimes& times, double harness_ms) {
  if (times.device_ms > 0) return {times.device_ms, "the kernel's own clock"};
  if (times.event_ms > 0) return {times.event_ms, "CUDA events around the launch"};
  return {harness_ms, kClockOfCall};
}

DecodeTime timed_decode(RepeatedDecode& repeated, const FlowServices& services) {
  Engine& engine = repeated.engine();
  repeated.begin();
  services.take_turn(engine);
  const TimedCall call = services.timed(engine, [&] { repeated.decode(); });
  return nearest_time(engine.last_times(), call.ms);
}

void switch_on(Engine& engine) {
  if (engine.set_timeline(true)) return;
  throw Error(ErrorKind::kRuntime, engine.capabilities().name + ": it offers no timeline");
}

}  // namespace

RecordedDecode record_timeline(const CaseJob& job, const CaseEngine& engine,
                               const FlowServices& services, int pairs) {
  RepeatedDecode repeated(job, engine, services);
  Engine& made = repeated.engine();
  RecordedDecode recorded;
  recorded.resolved = made.capabilities().name;
  // Both kernels are warmed up: the one that records, then the one that ships.
  switch_on(made);
  for (int run = 0; run < job.warmup; ++run) timed_decode(repeated, services);
  made.set_timeline(false);
  for (int run = 0; run < job.warmup; ++run) timed_decode(repeated, services);
  for (int pair = 0; pair < pairs; ++pair) {
    recorded.cost.without_ms.push_back(timed_decode(repeated, services).ms);
    switch_on(made);
    const DecodeTime time = timed_decode(repeated, services);
    recorded.cost.with_ms.push_back(time.ms);
    recorded.cost.clock = time.clock;
    if (pair + 1 == pairs) recorded.timeline = made.timeline();
    made.set_timeline(false);
  }
  return recorded;
}

}  // namespace mkbench
