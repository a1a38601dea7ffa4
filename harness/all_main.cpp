// mkbench-all: mkbench with every engine in its own process, for debuggers, profilers and
// sanitizers (--in-process) and for quick tests.
#include "harness/cli/command_main.h"
#include "harness/host/card_work.h"
#include "harness/host/cuda_program.h"
#include "harness/host/local_host.h"
#include "harness/host/makers.h"
#include "harness/host/torch_program.h"

int main(int argc, char** argv) {
  using namespace mkbench;
  std::vector<const EngineMaker*> makers = cuda_makers();
  for (const EngineMaker* maker : torch_makers()) makers.push_back(maker);
  const HostProgram program{.name = "mkbench-all",
                            .factory = EngineFactory(makers),
                            .finish = finish_device_work,
                            .flush = flush_l2,
                            // No recorder: it would stay in mkbench's own process to the end, and
                            // CUPTI admits one client, which may be a profiler of this process.
                            .trace = {},
                            .card = card_facts,
                            .torch = torch_told,
                            .tune = tune_ring,
                            .device_bytes = device_bytes};
  return command_main(
      {argv, argv + argc},
      [&program](const std::string&) -> StartHost {
        return [&program](HostKind, const std::string&) -> std::shared_ptr<HostLink> {
          return std::make_shared<LocalHost>(program);
        };
      },
      true);
}
