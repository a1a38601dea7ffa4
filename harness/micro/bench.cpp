#include "harness/micro/bench.h"

#include <benchmark/benchmark.h>

#include <algorithm>

#include "kernels/plain/megakernel.h"
#include "references/base/error.h"

namespace mkbench::micro {

Bench::Bench() {
  const DeviceList list = list_devices();
  // All device code of this binary is built for the architectures of plain.
  const Usability usability = judge_device(list, 0, plain_architectures());
  if (!usability.usable()) {
    obstacle_ = "no usable GPU: " + usability.reason;
  } else {
    gpu_ = list.devices[0];
  }
}

void Bench::add(const std::string& name, const Body& body, int iterations) {
  auto run = [this, body](benchmark::State& state) {
    if (!obstacle_.empty()) {
      state.SkipWithError(obstacle_.c_str());
      return;
    }
    try {
      body(state);
    } catch (const Error& error) {
      const bool cannot =
          error.kind() == ErrorKind::kUnsupportedDevice || error.kind() == ErrorKind::kEnvUnfit;
      if (!cannot) ++failures_;
      state.SkipWithError(
          ((cannot ? "cannot run here: " : "") + std::string(error.what())).c_str());
    } catch (const std::exception& error) {
      ++failures_;
      state.SkipWithError(error.what());
    }
  };
  benchmark::internal::Benchmark* added =
      benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime();
  added->Unit(benchmark::kMicrosecond);
  if (iterations == 0) return;
  added->Iterations(iterations);
  added->ComputeStatistics("min", [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  });
  added->ComputeStatistics("max", [](const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
  });
}

ReadProbe& Bench::probe() {
  if (!probe_) probe_ = std::make_unique<ReadProbe>(gpu_.index);
  return *probe_;
}

}  // namespace mkbench::micro
