#include "harness/flow/watched_blocks.h"

#include <memory>

#include "harness/flow/contestant.h"
#include "harness/flow/timed_truth.h"

namespace mkbench {

std::string blocks_range(const CaseJob& job, const CaseEngine& engine) {
  return range_name(engine.name, first_depth(job));
}

WatchedEngine run_watched_blocks(const CaseJob& job, const CaseEngine& engine,
                                 const FlowServices& services, bool tokens) {
  const ModelWeights weights = services.load(job.model, first_depth(job));
  const TimedTruth truth = find_timed_truth(job, weights);
  const int context = context_for(first_depth(job) + job.n_gen + 1, weights.config.max_positions);
  const std::unique_ptr<Engine> made =
      services.make_engine({.name = engine.name, .max_context = context}, weights);
  const EngineCapabilities can = made->capabilities();
  const WatchedEngine told{can.name, can.one_launch, tokens && !can.one_launch};
  LateIds late_ids(truth.late_ids, services.random);
  start_afresh(*made, truth.prompt);
  const Snapshot start = can.snapshots ? made->save() : Snapshot{};
  for (int run = -job.warmup; run < job.blocks; ++run) {
    if (services.stop()) throw Interrupted{};
    const int32_t late = late_ids.draw();
    if (can.late_id) {
      start_again(*made, start, truth.prompt);
    } else {
      start_afresh(*made, truth.ending_with(late));
    }
    if (run >= 0) {
      RangeLabel label = block_label(engine.name, first_depth(job), run);
      label.tokens = told.tokens;
      if (run == 0) label.opens = blocks_range(job, engine);
      label.closes = run == job.blocks - 1;
      services.label_next(*made, label);
    }
    can.late_id ? made->decode_late(late, job.n_gen) : made->decode(job.n_gen);
  }
  return told;
}

}  // namespace mkbench
