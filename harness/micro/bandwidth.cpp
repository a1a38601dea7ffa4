// Read bandwidth by plain loads, and by bulk copies in several patterns.
#include <benchmark/benchmark.h>

#include "harness/micro/bench.h"
#include "references/base/error.h"
#include "references/base/median.h"

namespace mkbench::micro {
namespace {

struct Pattern {
  uint32_t stages, kib;
};
// From 32 to 96 KiB in flight per multiprocessor, in copies of three sizes.
constexpr Pattern kPatterns[] = {{2, 16}, {3, 16}, {4, 16}, {6, 16}, {4, 8}, {12, 4}};
constexpr uint32_t kGapsNs[] = {0, 400};

// One iteration is one launch that reads probe.bytes_per_launch(); sample() runs it and returns
// milliseconds.
void run_samples(benchmark::State& state, ReadProbe& probe, const std::function<double()>& sample) {
  sample();  // warm-up: a short run has one iteration only, which would be a cold start
  std::vector<double> rates;
  for (auto _ : state) {
    const double ms = sample();
    state.SetIterationTime(ms * 1e-3);
    rates.push_back(static_cast<double>(probe.bytes_per_launch()) / (ms * 1e6));
  }
  state.counters["GB/s"] = median(rates);
}

}  // namespace

void add_bandwidth(Bench& bench) {
  bench.add("read/plain", [&bench](benchmark::State& state) {
    ReadProbe& probe = bench.probe();
    run_samples(state, probe, [&] { return probe.ms({}); });
  });
  for (const Pattern& pattern : kPatterns) {
    for (const uint32_t gap_ns : kGapsNs) {
      const BulkPlan plan{pattern.stages, pattern.kib * 1024, 1000 * gap_ns};
      const std::string name = "read/bulk/" + std::to_string(pattern.stages) + "x" +
                               std::to_string(pattern.kib) + "KiB/gap_ns:" + std::to_string(gap_ns);
      bench.add(name, [&bench, plan](benchmark::State& state) {
        ReadProbe& probe = bench.probe();
        if (!probe.has_bulk_copy())
          throw Error(ErrorKind::kUnsupportedDevice, "bulk copies need sm_90");
        run_samples(state, probe, [&] { return probe.ms({ReadPattern::Way::kBulk, plan}); });
      });
    }
  }
}

}  // namespace mkbench::micro
