// naive_cuda.cu as a decoder that gets its token from the host and gives the next one back, behind step().
#include "references/step_engine.h"

#define mkbench_engine_table whole_engine_table
#include "tests/plugins/naive_cuda.cu"
#undef mkbench_engine_table

namespace {

struct Stepwise : mkbench_step::Step {
  static constexpr const char* name = "step-cuda";
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;

  Naive whole;
  mkbench_step::Memory<int32_t> ids;

  void open(const mkbench_model& model, const mkbench_step::Tensors& tensors) {
    whole.open(model, tensors);
    ids = mkbench_step::make<int32_t>(2);
  }

  int32_t step(int32_t token, int32_t position, float* logits) {
    int32_t host[2] = {token, -1};
    mkbench_step::copy(ids.get(), host, sizeof host);
    whole.steps(ids.get(), position, 1, ids.get() + 1, logits);
    mkbench_step::copy(host, ids.get(), sizeof host);
    return host[1];
  }
};

}  // namespace

MKBENCH_STEP_ENGINE(Stepwise)
