#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "harness/commands/selftest.h"
#include "harness/selftest/lanes.h"
#include "harness/worker/interrupt.h"
#include "kernels/plain/faults.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/error.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

std::unique_ptr<Engine> make_cuda_engine(int gpu, const std::string& name,
                                         const ModelWeights& weights, int max_context,
                                         PlantedFault fault) {
  if (name == "ring") {
    RingOptions options;
    options.gpu = gpu;
    options.max_context = max_context;
    options.fault = fault;
    return make_ring(weights, options);
  }
  PlainOptions options;
  options.gpu = gpu;
  options.max_context = max_context;
  options.fault = fault;
  return plain::has_hook(fault) ? plain::make_plain_with_hook(weights, options)
                                : make_plain(weights, options);
}

// True when further lanes of this process can run.
bool run_lane(size_t index, LaneRunner& runner, MessageSink& sink) {
  sink.send({{"type", "lane_started"}, {"lane", index}});
  Json message = {{"type", "lane"}, {"lane", index}};
  bool sound = true;
  try {
    const LaneOutcome outcome = runner.run(fault_lanes()[index]);
    message["failing"] = outcome.failing;
    message["note"] = outcome.note;
    if (outcome.r_rms) message["r_rms"] = *outcome.r_rms;
  } catch (const Error& error) {
    message["failing"] = {"error"};
    message["note"] = error.what();
    sound = error.kind() != ErrorKind::kCuda;
  } catch (const std::exception& error) {
    message["failing"] = {"error"};
    message["note"] = error.what();
  }
  sink.send(message);
  return sound;
}

}  // namespace

void run_selftest(const Json& job, MessageSink& sink) {
  const int gpu = job.value("gpu", 0);
  LaneRunner runner([gpu](const std::string& name, const ModelWeights& weights, int max_context,
                          PlantedFault fault) {
    return make_cuda_engine(gpu, name, weights, max_context, fault);
  });
  std::vector<size_t> host, cuda;
  for (const Json& item : job.at("lanes")) {
    const auto index = item.get<size_t>();
    (lane_info(fault_lanes().at(index).lane).cuda ? cuda : host).push_back(index);
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < host.size() && interrupt_count() == 0;) {
      run_lane(host[i], runner, sink);
    }
  };
  {
    const size_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> team;
    for (size_t t = 1; t < std::min(cores, host.size()); ++t) team.emplace_back(work);
    work();
  }
  for (const size_t index : cuda) {
    if (interrupt_count() > 0 || !run_lane(index, runner, sink)) return;
  }
}

}  // namespace mkbench
