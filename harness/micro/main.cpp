// mkbench_micro: microbenchmarks of single parts, with Google Benchmark's command line
// (--benchmark_filter, --benchmark_min_time, --benchmark_out). Times are measured on the GPU.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>

#include "harness/micro/bench.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;  // the exit codes of mkbench itself

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return kUsage;
  mkbench::micro::Bench bench;
  mkbench::micro::add_bandwidth(bench);
  mkbench::micro::add_ceiling(bench);
  mkbench::micro::add_phases(bench);
  mkbench::micro::add_ring(bench);
  benchmark::AddCustomContext("gpu", bench.obstacle().empty() ? bench.gpu().name : "none");
  if (!bench.obstacle().empty()) {
    std::fprintf(stderr, "mkbench_micro: every benchmark is skipped: %s\n",
                 bench.obstacle().c_str());
  }
  const size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (matched == 0) return kUsage;  // no name matches the filter; the library has printed that
  return bench.failures() == 0 ? 0 : kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mkbench_micro: error: %s\n", error.what());
    return kFailed;
  }
}
