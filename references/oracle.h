// The fp32 truth in plain C++: bf16 weights, fp32 arithmetic, no bf16 rounding of any intermediate.
// Slow and readable; never timed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "references/model/weights.h"

namespace mkbench {

// Runs forward passes of one sequence, step by step, with an fp32 KV cache. Holds a copy of the
// (cheap) ModelWeights.
class Oracle {
 public:
  explicit Oracle(ModelWeights weights, int threads = 0);
  // One step at position(): appends a KV row; returns logits [vocab] if wanted, else empty.
  // Throws Error(kBadInput) for an id outside the vocabulary or a full context.
  std::vector<float> step(int32_t id, bool want_logits = true);
  // One step with a vector [hidden] as input in place of an embedding row. Throws Error(kBadInput)
  // for another length, values that are not finite, or a full context.
  std::vector<float> step(std::span<const Bf16> vector, bool want_logits = true);
  // Output of the last step's final norm, [hidden]: the LM head's input. Empty before a step.
  std::vector<float> final_hidden() const;
  int position() const { return position_; }
  void reset();
  // Hidden state after each layer of the last step, [layers][hidden].
  const std::vector<std::vector<float>>& hidden_states() const { return hidden_; }
  // K (after norm and RoPE) then V of one position, [2 * kv_width].
  std::vector<float> kv_row(int layer, int position) const;

 private:
  std::vector<float> forward(std::vector<float> h, bool want_logits);
  void check_room() const;
  std::vector<float> attention(int layer, const std::vector<float>& x);

  ModelWeights weights_;
  int threads_ = 1;
  int position_ = 0;
  std::vector<std::vector<float>> k_, v_;  // [layers][positions * kv_width]
  std::vector<std::vector<float>> hidden_;
  std::vector<float> inv_freq_;
};

// Lowest index of the largest value; -1 when any value is NaN.
int32_t argmax_lowest(std::span<const float> values);

}  // namespace mkbench
