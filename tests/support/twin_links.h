// Links to hosts of the host twin: one in this process, one a process of tests/hosts/twin_host.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/host/local_host.h"
#include "harness/hosts/host_process.h"
#include "harness/wire/build_id.h"
#include "references/snapshot.h"
#include "tests/support/twin_program.h"

namespace mkbench::testing {

inline constexpr int kContext = 200;
inline constexpr double kTimeout = 60;

inline std::shared_ptr<HostLink> local() { return std::make_shared<LocalHost>(twin_program()); }

inline std::shared_ptr<HostProcess> process(const std::string& holds = "twin") {
  return std::make_shared<HostProcess>(
      HostCommand{.argv = {MKBENCH_TWIN_HOST}, .build = build_id(), .holds = holds});
}

inline std::vector<std::shared_ptr<HostLink>> both_links() { return {local(), process()}; }

inline EngineRequest request(PlantedFault fault = PlantedFault::kNone, int context = kContext) {
  return {.name = "host-twin", .max_context = context, .fault = fault, .cuda = false};
}

inline const ModelWeights& tiny() {
  static const ModelWeights weights = load_model(resolve_model("tiny"));
  return weights;
}

}  // namespace mkbench::testing
