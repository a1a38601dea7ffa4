// What all microbenchmarks share: the GPU, the probe of its memory, and how a benchmark that cannot
// run says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/roofline.h"

namespace benchmark {
class State;
}

namespace mkbench::micro {

using Body = std::function<void(benchmark::State&)>;

// Must outlive the run: registered benchmarks keep a reference.
class Bench {
 public:
  // Looks for GPU 0 (CUDA_VISIBLE_DEVICES chooses another); takes no memory of it. Never throws.
  Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Registers a benchmark with manual time. Without a usable GPU it is reported as skipped, with
  // the reason; so is one that throws Error(kUnsupportedDevice) or Error(kEnvUnfit). Any other
  // exception is reported, and counted as a failure.
  void add(const std::string& name, const Body& body);

  // Why nothing can be measured here; empty where it can.
  const std::string& obstacle() const { return obstacle_; }
  const DeviceInfo& gpu() const { return gpu_; }  // only without an obstacle
  int failures() const { return failures_; }
  // Made when first asked for. Throws what its constructor does.
  ReadProbe& probe();

 private:
  std::string obstacle_;
  DeviceInfo gpu_;
  std::unique_ptr<ReadProbe> probe_;
  int failures_ = 0;
};

// Of at least one value; sorts a copy.
double median(std::vector<double> values);

// One function a topic, each in a file of that name.
void add_bandwidth(Bench& bench);
void add_phases(Bench& bench);
void add_ring(Bench& bench);

}  // namespace mkbench::micro
