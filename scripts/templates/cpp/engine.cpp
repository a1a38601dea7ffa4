// A decoder of your own in C++ or CUDA, behind mkbench's step_engine.h.
//
// The frame is complete: it checks the model, finds the weights and makes the KV cache. What is
// missing is your kernel, in the function between "Your kernel begins" and "ends". Until then it
// throws its own name and line, and mkbench's verdict is RUNTIME_ERROR.
//
// mkbench calls one engine from one thread, on which the card, if there is one, is current; several
// engines may be open at a time, so state belongs in the class. What you print goes to mkbench's
// stderr. "Device" below is the card in a CUDA library, else the host.
#include <cstdint>
#include <stdexcept>
#include <string>
#ifdef __CUDACC__
#include <cuda_bf16.h>
using Bf16 = __nv_bfloat16;
#else
#include <cstring>
using Bf16 =
    uint16_t;  // the upper half of a float's bits: bf16_to_float() and float_to_bf16() convert
#endif

#include "step_engine.h"

namespace {

#ifndef __CUDACC__
inline float bf16_to_float(Bf16 x) {
  const uint32_t bits = uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to the nearest, ties to even; x must not be NaN.
inline Bf16 float_to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<Bf16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

struct Mine : mkbench_step::Step {
  static constexpr const char* name = "@NAME@";  // as reports show it
  // How logits are judged: FP32_ACCUMULATE rounds only KV rows, RoPE table and one operand of a
  // product; BF16 rounds as PyTorch does, FP16 to fp16 at the same places; LOSSY is quantised and
  // ranked with no other.
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
  // Add MKBENCH_ONE_LAUNCH if n steps are one launch (the driver's records are compared),
  // MKBENCH_NOT_DETERMINISTIC if equal input may give other bits.
  static constexpr uint32_t can = Step::can;

  mkbench_model m = {};  // sizes, rope_theta, rms_norm_eps
  // bf16, row-major [out, in], as Hugging Face stores them; read only: a change ends in INTEGRITY.
  // embedding, head, final_norm, and of each of `layers`: input_norm, q, k, v, o, q_norm, k_norm,
  // post_norm, gate, up, down; their shapes stand at struct Layer in step_engine.h.
  mkbench_step::Weights<Bf16> weights;
  mkbench_step::Memory<Bf16> keys, values;  // device [layers, max_context, kv_heads * head_dim]
  int32_t max_context = 0;                  // rows that the KV cache must hold

  // Throw Unfit here, in one line, if your kernel has no code for the model (it ends as BAD_INPUT). A
  // kernel that is compiled for one model compares all of `model` with it.
  void open(const mkbench_model& model, const mkbench_step::Tensors& tensors) {
    if (const char* why = mkbench_unlike_qwen3(&model)) throw mkbench_step::Unfit(why);
    m = model;
    weights = {model, tensors};
    max_context = tensors.args.max_context;
    const size_t cache = size_t(m.layers) * max_context * m.kv_heads * m.head_dim;
    keys = mkbench_step::make<Bf16>(cache);
    values = mkbench_step::make<Bf16>(cache);
  }

  void steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits);
};

}  // namespace

// ---- Your kernel begins -------------------------------------------------------------------------

// n greedy steps, n >= 1, from `position` on; a megakernel is one launch here. A step embeds its
// input id, writes one KV row, and emits the id of the largest logit, the lowest id among equals.
// There is room for the rows, and every id given is in [0, vocab).
//   token: device; the input of step 0. A later step takes the id emitted before it.
//   ids: device [n], to be filled. It holds -1: an id that is still -1 counts as not generated.
//   logits: null where the time is reported. Else fp32, device [n, vocab], to be filled; NaN beforehand.
// ids and logits have no room beyond that: a write past their end gives INTEGRITY. The clock runs
// from this call until the device is done.
void Mine::steps(const int32_t*, int32_t, int32_t, int32_t*, float*) {
  throw std::logic_error("steps is not written yet: " __FILE__ ":" + std::to_string(__LINE__));
}

// ---- Your kernel ends ---------------------------------------------------------------------------

MKBENCH_STEP_ENGINE(Mine)
