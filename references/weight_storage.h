// How an engine keeps a weight that it has quantised itself, as it declares it.
#pragma once

#include <cstdint>

#include "references/base/fields.h"

namespace mkbench {

// A block of block_out x block_in values of [out, in] has one scale and one zero point; 0 x 0: there are
// none. bytes: what a step reads of the weight.
struct WeightStorage {
  int bits = 0, scale_bits = 0, zero_bits = 0;
  int64_t block_out = 0, block_in = 0, bytes = 0;
  static void fields(auto& v) {
    using W = WeightStorage;
    list_fields(v, "bits", &W::bits, "scale_bits", &W::scale_bits, "zero_bits", &W::zero_bits,
                "block_out", &W::block_out, "block_in", &W::block_in, "bytes", &W::bytes);
  }
};

}  // namespace mkbench
