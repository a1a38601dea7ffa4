#include "kernels/plain/faults.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/cuda_check.h"
#include "kernels/plain/instances/faults.h"
#include "references/base/error.h"
#include "references/engine_maker.h"

namespace mkbench::plain {

bool has_hook(PlantedFault fault) {
  using F = PlantedFault;
  static constexpr std::array kHooks = {
      F::kQueryPosition, F::kDecodePositions, F::kSkipQNorm,          F::kSkipKNorm,
      F::kNormAfterRope, F::kValueNormed,     F::kSlotUnwritten,      F::kEvery16thSkipped,
      F::kKvThreeBits,   F::kKvRowBefore,     F::kMlpResidualDropped, F::kGelu,
      F::kBf16Softmax,   F::kNoSoftmaxMax,    F::kTailRowsUnscored,   F::kArgmaxHighest,
      F::kArgmaxHalving, F::kNanLogit,        F::kBlockDelayed};
  return std::find(kHooks.begin(), kHooks.end(), fault) != kHooks.end();
}

std::unique_ptr<Engine> make_plain_with_hook(const ModelWeights& weights, PlainOptions options) {
  if (!has_hook(options.fault)) {
    throw Error(ErrorKind::kBadInput, "plain megakernel: no hook of the kernel plants fault " +
                                          std::string(planted_fault_name(options.fault)));
  }
  if (!weights.config.shape.same_layer_shape(kTiny)) {
    throw Error(ErrorKind::kBadInput,
                "plain megakernel: fault hooks are compiled for tiny's layer shape only");
  }
  options.kernel = faulty_kernel();
  std::unique_ptr<Engine> engine = make_plain(weights, options);
  const int fault = static_cast<int>(options.fault);
  MKBENCH_CUDA(cudaMemcpyToSymbol(planted_fault_symbol(), &fault, sizeof fault));
  return engine;
}

}  // namespace mkbench::plain

namespace mkbench {

extern const EngineMaker plain_maker;

namespace {

std::unique_ptr<Engine> make(const ModelWeights& weights, const EngineRequest& request) {
  if (!plain::has_hook(request.fault)) return plain_maker.make(weights, request);
  PlainOptions options;
  options.gpu = request.gpu;
  options.max_context = request.max_context;
  options.fault = request.fault;
  return plain::make_plain_with_hook(weights, options);
}

int64_t bytes(const ModelConfig& config, const EngineRequest& request) {
  return plain_maker.bytes(config, request);
}

}  // namespace

// The engine of the fault corpus: plain, with the requested fault planted.
extern const EngineMaker plain_faults_maker{
    .name = kPlainWithFaults, .make = make, .bytes = bytes, .takes_kernel_faults = true};

}  // namespace mkbench
