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

// True when further lanes of this process can run.
bool run_lane(size_t index, LaneRunner& runner, MessageSink& sink) {
  sink.send(LaneStarted{index});
  LaneDone message{.lane = index, .failing = {"error"}, .r_rms = {}, .note = ""};
  bool sound = true;
  try {
    const LaneOutcome outcome = runner.run(fault_lanes().at(index));
    message = {index, outcome.failing, outcome.r_rms, outcome.note};
  } catch (const Error& error) {
    message.note = error.what();
    sound = error.kind() != ErrorKind::kCuda;
  } catch (const std::exception& error) {
    message.note = error.what();
  }
  sink.send(message);
  return sound;
}

}  // namespace

void run_selftest(const SelftestJob& job, MessageSink& sink) {
  LaneRunner runner(cuda_engine_maker(job.gpu));
  std::vector<size_t> host, cuda;
  for (const size_t index : job.lanes) {
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
