#include "harness/host/selftest_lanes.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "harness/selftest/cuda_engines.h"
#include "harness/wire/interrupt.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

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
  LaneRunner runner(cuda_engine_maker(job.value("gpu", 0)));
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
