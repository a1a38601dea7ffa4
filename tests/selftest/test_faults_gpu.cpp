// The fault corpus on CUDA engines: every lane fails exactly the checks that the table says, and
// plain's instance with hooks is plain where none is planted.
#include "harness/host/factory.h"
#include "harness/host/makers.h"
#include "harness/selftest/lanes.h"
#include "kernels/plain/faults.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/ring_models.h"

using namespace mkbench;

TEST_CASE("every CUDA lane of the fault table shows what it is to show", "[faults]") {
  if (testing::no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const EngineFactory factory(cuda_makers());
  LaneRunner runner([&](const EngineRequest& request, const ModelWeights& weights) {
    return factory.make(request, weights);
  });
  for (const FaultLane& lane : fault_lanes()) {
    if (!lane_info(lane.lane).cuda) continue;
    const LaneOutcome outcome = runner.run(lane);
    INFO("row " << lane.row << ", lane " << lane_info(lane.lane).name << ", " << lane.plant << ", "
                << lane.model << ": " << outcome.note);
    CHECK(surprise(lane, outcome) == "");
  }
}
