// What a part of a kernel does during a span of its timeline. Host and device code use it.
#pragma once

#include <cstddef>
#include <string_view>

namespace mkbench {

enum class SpanKind : int {
  kBody,      // works on the phase
  kExchange,  // waits for results of other blocks
  kWeights,   // waits for weights or KV rows of its own block, or requests them
  kHandOff,   // waits for another part of its block, or hands its results over
  kRoom,      // waits for room to load ahead
  kCount
};

constexpr std::string_view span_kind_name(SpanKind kind) {
  constexpr std::string_view kNames[] = {"body", "exchange", "weights", "hand-off", "room"};
  static_assert(sizeof kNames / sizeof kNames[0] == static_cast<size_t>(SpanKind::kCount));
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace mkbench
