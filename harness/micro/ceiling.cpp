// The ceiling of Qwen3-0.6B, timed as in a run of mkbench: each repetition first searches for the
// pattern again and then times fresh samples of it.
#include <benchmark/benchmark.h>

#include <string>

#include "harness/device/ceiling_engine.h"
#include "harness/micro/bench.h"
#include "references/base/median.h"

namespace mkbench::micro {
namespace {

constexpr int kDepths[] = {0, 4096};
constexpr int kSteps = 128;  // per sample, which thus lasts 20 ms or more at up to 7 TB/s
constexpr int kSamples = 9;

void run_ceiling(benchmark::State& state, Engine& ceiling, int depth) {
  search_again(ceiling);
  state.SetLabel(ceiling.settings());
  double bytes = 0;
  for (int t = 0; t < kSteps; ++t)
    bytes += static_cast<double>(kQwen3_0_6B.bytes_per_step(depth + t));
  std::vector<double> ms;
  while (state.KeepRunning()) {
    ceiling.rewind(depth);
    ceiling.decode(kSteps);
    ms.push_back(ceiling.last_times().host_ms);
    state.SetIterationTime(ms.back() * 1e-3);
  }
  state.counters["GB/s"] = bytes / (1e6 * median(ms));
  state.counters["us/step"] = 1e3 * median(ms) / kSteps;
}

}  // namespace

void add_ceiling(Bench& bench) {
  for (const int depth : kDepths) {
    auto engine = std::make_shared<std::unique_ptr<Engine>>();
    bench.add(
        "ceiling/depth:" + std::to_string(depth),
        [=](benchmark::State& state) {
          if (!*engine) {
            *engine = make_ceiling(
                random_weights(kQwen3_0_6B.layers, kQwen3_0_6B.vocab),
                {.name = "ceiling", .max_context = depth + kSteps, .depth = depth, .cuda = true});
          }
          run_ceiling(state, **engine, depth);
        },
        kSamples);
  }
}

}  // namespace mkbench::micro
