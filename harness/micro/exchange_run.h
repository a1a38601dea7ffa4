// Runs one launch of an exchange microbenchmark, idle or while every multiprocessor streams memory.
#pragma once

#include <optional>
#include <vector>

#include "harness/micro/exchange_params.h"
#include "kernels/device_buffer.h"

namespace mkbench::micro {

inline constexpr int kRounds = 2000;
inline constexpr int kWarmUpRounds = 100;  // and the time in which a load reaches its rate

struct ExchangeResult {
  std::vector<double> cycles;  // of each round after the warm-up, as block 0 saw it
  double sm_ghz = 0;           // block 0's clock meanwhile
  double window_ms = 0;        // of all rounds
  int multiprocessors = 0;     // that ran the blocks
  double load_gb_per_s = 0;
};

class ExchangeRunner {
 public:
  // For GPU 0 of a machine that has it. Throws Error(kEnvUnfit, kCuda).
  ExchangeRunner();
  ExchangeRunner(const ExchangeRunner&) = delete;
  ExchangeRunner& operator=(const ExchangeRunner&) = delete;
  ~ExchangeRunner();

  // `load` streams out of `probe`'s buffer. Throws Error(kUnsupportedDevice) when the blocks or the
  // load do not fit this card, Error(kHang) when a wait ran out, Error(kIntegrity) when a block
  // read a wrong value, Error(kRuntime) when the load did not last.
  ExchangeResult run(Protocol protocol, const std::optional<BulkPlan>& load, ReadProbe* probe);

 private:
  void clear();
  void check_fit(const void* kernel, const std::optional<BulkPlan>& load) const;
  void start_load(const BulkPlan& plan, const ReadProbe& probe);
  void check_outcome() const;
  double load_rate(const BulkPlan& plan, unsigned long long window_end_ns) const;

  cudaDeviceProp properties_{};
  cudaStream_t load_stream_ = nullptr;
  DeviceBuffer<char> words_;
  DeviceBuffer<unsigned> round_cycles_, multiprocessors_;
  DeviceBuffer<unsigned> control_;  // see Control
  DeviceBuffer<unsigned long long> window_ns_;
  DeviceBuffer<LoadReport> load_reports_;
  MappedValue<KernelStatus> status_;
  MappedValue<int> load_running_;
};

}  // namespace mkbench::micro
