// mkbench-host-torch: the host of the engines that need libtorch, and of the judge's runs.
#include "harness/device/launch_recorder.h"
#include "harness/host/card_work.h"
#include "harness/host/makers.h"
#include "harness/host/serve.h"
#include "harness/host/torch_program.h"

int main() {
  using namespace mkbench;
  return serve({.name = "mkbench-host-torch",
                .factory = EngineFactory(torch_makers()),
                .finish = finish_device_work,
                .flush = flush_l2,
                .trace = record_launches,
                .card = {},
                .torch = torch_told,
                .tune = {},
                .device_bytes = device_bytes});
}
