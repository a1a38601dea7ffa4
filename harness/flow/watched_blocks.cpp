#include "harness/flow/watched_blocks.h"

#include "harness/flow/repeated_decode.h"

namespace mkbench {

std::string blocks_range(const CaseJob& job, const CaseEngine& engine) {
  return range_name(engine.name, first_depth(job));
}

WatchedEngine run_watched_blocks(const CaseJob& job, const CaseEngine& engine,
                                 const FlowServices& services, bool tokens) {
  RepeatedDecode repeated(job, engine, services);
  const EngineCapabilities can = repeated.engine().capabilities();
  const WatchedEngine told{can.name, can.one_launch, tokens && !can.one_launch};
  for (int run = -job.warmup; run < job.blocks; ++run) {
    repeated.begin();
    if (run >= 0) {
      RangeLabel label = block_label(engine.name, first_depth(job), run);
      label.tokens = told.tokens;
      if (run == 0) label.opens = blocks_range(job, engine);
      label.closes = run == job.blocks - 1;
      services.label_next(repeated.engine(), label);
    }
    repeated.decode();
  }
  return told;
}

}  // namespace mkbench
