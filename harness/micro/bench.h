// What all microbenchmarks share: the GPU, the probe of its memory, and the registration, which
// reports a benchmark that cannot run as skipped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/step_reader.h"
#include "references/model/weights.h"

namespace benchmark {
class State;
}

namespace mkbench::micro {

using Body = std::function<void(benchmark::State&)>;

// Must outlive the run, because registered benchmarks keep a reference to it.
class Bench {
 public:
  // Looks for GPU 0 (CUDA_VISIBLE_DEVICES chooses another) and allocates nothing on it. Never
  // throws.
  Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Registers a benchmark with manual time. It is reported as skipped, with the reason, when there
  // is no usable GPU and when it throws Error(kUnsupportedDevice) or Error(kEnvUnfit). Any other
  // exception is reported, and counted as a failure. With `iterations` the body is called once for
  // each repetition (--benchmark_repetitions), and the smallest and largest values are printed too.
  void add(const std::string& name, const Body& body, int iterations = 0);

  // Why no benchmark can run on this machine; empty if they can.
  const std::string& obstacle() const { return obstacle_; }
  const DeviceInfo& gpu() const { return gpu_; }  // only without an obstacle
  int failures() const { return failures_; }
  // Made by the first call, which throws what the constructor of ReadProbe throws.
  ReadProbe& probe();

 private:
  std::string obstacle_;
  DeviceInfo gpu_;
  std::unique_ptr<ReadProbe> probe_;
  int failures_ = 0;
};

// Random weights of Qwen3-0.6B's layer shape. All tensors share one array of values; no kernel can
// profit from that, because each tensor is uploaded to memory of its own.
ModelWeights random_weights(int layers, int vocab);

// Each registers the benchmarks of the file that it is named after.
void add_bandwidth(Bench& bench);
void add_ceiling(Bench& bench);
void add_ring(Bench& bench);

}  // namespace mkbench::micro
