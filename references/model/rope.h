// The rotary frequencies of a model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "references/model/architecture.h"

namespace mkbench {

// The head_dim / 2 frequencies in fp32, in transformers' order of operations, which other orders
// miss by the last bit: 1 / theta^(2i / head_dim), then the model's scaling.
std::vector<float> inverse_frequencies(const Rope& rope, int head_dim);

// Scales frequencies of theta in place, as transformers does for rope_type "linear" and "llama3".
void scale_frequencies(const Rope& rope, std::span<float> frequencies);
// scale_frequencies() for one frequency, in double.
double scaled_frequency(const Rope& rope, double frequency);

// "llama3, factor 8, low_freq_factor 1, ...": keys and values of the scaling; empty for kNone.
std::string scaling_text(const Rope& rope);

}  // namespace mkbench
