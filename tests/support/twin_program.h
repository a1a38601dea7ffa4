// A host program without CUDA and libtorch: the host twin as an engine, and as the judge's.
#pragma once

#include <unistd.h>

#include "harness/host/server.h"

namespace mkbench {
extern const EngineMaker host_twin_maker;
}

namespace mkbench::testing {

// The GPU of a FlushCall says what finish() finds on the device afterwards.
inline constexpr int kWorkLeft = 8, kWorkThatEnds = 9;

inline int& flushed_gpu() {
  static int gpu = -1;
  return gpu;
}

inline const HostProgram& twin_program() {
  static const EngineMaker judge = [] {
    EngineMaker maker = host_twin_maker;
    maker.name = "eager";
    maker.settings = [] { return std::string("pinned=1"); };
    return maker;
  }();
  static const HostProgram program{.name = "twin-host",
                                   .factory = EngineFactory({&host_twin_maker, &judge}),
                                   .finish =
                                       [] {
                                         if (flushed_gpu() == kWorkThatEnds) usleep(400'000);
                                         if (flushed_gpu() == kWorkLeft) sleep(1000);
                                       },
                                   .flush = [](const FlushCall& call) { flushed_gpu() = call.gpu; },
                                   .trace =
                                       [](const std::function<void()>& work) {
                                         work();
                                         return LaunchTrace{.kernels = 7};
                                       },
                                   .card = {},
                                   .torch = {},
                                   .tune = {}};
  return program;
}

}  // namespace mkbench::testing
