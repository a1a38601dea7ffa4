// Where the words through which blocks exchange results lie in their allocation.
#pragma once

#include "kernels/ring/params.h"
#include "kernels/ring/rows.h"

namespace mkbench::ring {

// Bytes from the allocation's start to each array. It is one allocation, because values, epochs and
// fault word must start together: every launch begins with all of it zero. Arrays start at
// multiples of 256 bytes; their shapes are in LaunchParams.
struct ExchangeLayout {
  size_t qkv, swiglu, partials, score_maxima, best, rows_written, attention_out, mlp_out, fault,
      bytes;
};

template <typename L>
constexpr ExchangeLayout exchange_layout() {
  constexpr size_t kWide = 16;  // bytes of a word that holds several values
  size_t end = 0;
  const auto place = [&end](size_t bytes) {
    const size_t at = end;
    end += (bytes + 255) / 256 * 256;
    return at;
  };
  ExchangeLayout at{};
  at.qkv = place(size_t{kBlocks} * L::kQkvRows * 4);
  at.swiglu = place(size_t{kBlocks} * L::kSwigluStride * 4);
  at.partials = place(size_t{kGroups} * kConsumerWarps * kMembers * L::kHeadPairs * 4 * kWide);
  at.score_maxima = place(size_t{kGroups} * kMembers * L::kHeadPairs * kWide);
  at.best = place(size_t{kBlocks} * kWide);
  at.rows_written = place(size_t{kGroups} * kMembers * 4);
  at.attention_out = place(size_t{kReplicas} * L::kHidden * 8);
  at.mlp_out = place(size_t{kReplicas} * L::kHidden * 8);
  at.fault = place(8);
  at.bytes = end;
  return at;
}

inline ExchangeLayout exchange_layout(const ModelShape& shape) {
  return with_layout(shape, []<typename L>(L) { return exchange_layout<L>(); });
}

}  // namespace mkbench::ring
