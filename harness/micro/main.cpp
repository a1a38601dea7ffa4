// mkbench_micro: microbenchmarks of single parts, with Google Benchmark's command line
// (--benchmark_filter, --benchmark_min_time, --benchmark_out). Times are measured on the GPU.
#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <string_view>

#include "harness/micro/bench.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;  // the same exit codes as mkbench's

// The first --benchmark_min_time that is not a number above 0, alone or followed by "s" (seconds)
// or "x" (iterations); null if there is none. Google Benchmark 1.8 aborts if it is no number.
const char* wrong_min_time(int argc, char** argv) {
  constexpr std::string_view kFlag = "--benchmark_min_time=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, kFlag.size()) != kFlag) continue;
    std::string_view value = argument.substr(kFlag.size());
    if (value.ends_with('s') || value.ends_with('x')) value.remove_suffix(1);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || !(number > 0)) return argv[i];
  }
  return nullptr;
}

int run(int argc, char** argv) {
  if (const char* wrong = wrong_min_time(argc, argv)) {
    std::fprintf(stderr, "mkbench_micro: error: %s: wanted a number above 0\n", wrong);
    return kUsage;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return kUsage;
  mkbench::micro::Bench bench;
  mkbench::micro::add_bandwidth(bench);
  mkbench::micro::add_ceiling(bench);
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
