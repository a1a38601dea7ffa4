// A host program without CUDA and libtorch: the host twin as an engine, and as the judge's.
#pragma once

#include "harness/host/server.h"

namespace mkbench {
extern const EngineMaker host_twin_maker;
}

namespace mkbench::testing {

inline const HostProgram& twin_program() {
  static const EngineMaker judge = [] {
    EngineMaker maker = host_twin_maker;
    maker.name = "eager";
    maker.settings = [] { return std::string("pinned=1"); };
    return maker;
  }();
  static const HostProgram program{.name = "twin-host",
                                   .factory = EngineFactory({&host_twin_maker, &judge}),
                                   .finish = [] {},
                                   .flush = [](const FlushCall&) {},
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
