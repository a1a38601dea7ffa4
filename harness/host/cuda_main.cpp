// mkbench-host-cuda: the host of ring, plain, graphs of its phases, host-twin, ceiling and plugins. It also answers
// questions about the GPUs.
#include "harness/device/launch_recorder.h"
#include "harness/host/card_work.h"
#include "harness/host/cuda_program.h"
#include "harness/host/makers.h"
#include "harness/host/serve.h"

int main() {
  using namespace mkbench;
  return serve({.name = "mkbench-host-cuda",
                .factory = EngineFactory(cuda_makers()),
                .finish = finish_device_work,
                .flush = flush_l2,
                .trace = record_launches,
                .card = card_facts,
                .torch = {},
                .tune = tune_ring,
                .device_bytes = device_bytes});
}
