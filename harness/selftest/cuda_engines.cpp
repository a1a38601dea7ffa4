#include "harness/selftest/cuda_engines.h"

#include "kernels/plain/faults.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"

namespace mkbench {

CudaEngineMaker cuda_engine_maker(int gpu) {
  return [gpu](const std::string& name, const ModelWeights& weights, int max_context,
               PlantedFault fault) -> std::unique_ptr<Engine> {
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
  };
}

}  // namespace mkbench
