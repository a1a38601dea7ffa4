// Latency of one all-to-all exchange among 128 blocks by each protocol, idle and under load.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "harness/micro/bench.h"
#include "harness/micro/exchange_run.h"

namespace mkbench::micro {
namespace {

struct NamedProtocol {
  Protocol protocol;
  const char* name;
};
constexpr NamedProtocol kProtocols[] = {
    {Protocol::kCounter, "counter"},
    {Protocol::kEpoch64, "epoch64"},
    {Protocol::kEpoch32, "epoch32_group16"},
    {Protocol::kPartial128, "partial128_group16"},
    {Protocol::kFixedPoint1, "fixed_point/replicas:1"},
    {Protocol::kFixedPoint4, "fixed_point/replicas:4"},
};
static_assert(std::size(kProtocols) == static_cast<size_t>(Protocol::kCount));

struct NamedLoad {
  const char* name;
  std::optional<BulkPlan> plan;
};
// As a decoder paces its stream, and as fast as the memory takes it.
constexpr NamedLoad kLoads[] = {{"idle", std::nullopt},
                                {"load:paced", BulkPlan{3, 16 * 1024, 700}},
                                {"load:unpaced", BulkPlan{6, 16 * 1024, 0}}};

double percentile(std::vector<double> values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// One iteration is one round; a launch runs kRounds of them. The time shown is the mean of all
// rounds, the counters tell of those after the warm-up.
void run_exchange(benchmark::State& state, ExchangeRunner& runner, Protocol protocol,
                  const std::optional<BulkPlan>& load, ReadProbe* probe) {
  std::vector<double> cycles, ghz, rates;
  int multiprocessors = ring::kBlocks;
  while (state.KeepRunningBatch(kRounds)) {
    const ExchangeResult result = runner.run(protocol, load, probe);
    state.SetIterationTime(result.window_ms * 1e-3);
    cycles.insert(cycles.end(), result.cycles.begin(), result.cycles.end());
    ghz.push_back(result.sm_ghz);
    rates.push_back(result.load_gb_per_s);
    multiprocessors = std::min(multiprocessors, result.multiprocessors);
  }
  const double cycles_per_us = 1e3 * median(ghz);
  state.counters["cycles"] = median(cycles);
  state.counters["us"] = median(cycles) / cycles_per_us;
  state.counters["p99_us"] = percentile(cycles, 0.99) / cycles_per_us;
  state.counters["SMs"] = multiprocessors;  // fewer than blocks: some shared one
  if (load) state.counters["load_GB/s"] = median(rates);
}

}  // namespace

void add_exchanges(Bench& bench) {
  // Made by the first benchmark that runs, shared by all.
  auto runner = std::make_shared<std::unique_ptr<ExchangeRunner>>();
  for (const NamedProtocol& protocol : kProtocols) {
    for (const NamedLoad& load : kLoads) {
      const std::string name = std::string("exchange/") + protocol.name + "/" + load.name;
      bench.add(name, [&bench, runner, protocol, load](benchmark::State& state) {
        if (!*runner) *runner = std::make_unique<ExchangeRunner>();
        run_exchange(state, **runner, protocol.protocol, load.plan,
                     load.plan ? &bench.probe() : nullptr);
      });
    }
  }
}

}  // namespace mkbench::micro
