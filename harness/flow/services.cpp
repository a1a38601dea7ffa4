#include "harness/flow/services.h"

#include <chrono>

namespace mkbench {

TimedCall time_here(Engine&, const std::function<void()>& call) {
  using Ms = std::chrono::duration<double, std::milli>;
  const auto begin = std::chrono::steady_clock::now();
  call();
  const auto end = std::chrono::steady_clock::now();
  return {.begin_ms = Ms(begin.time_since_epoch()).count(),
          .ms = Ms(end - begin).count(),
          .slack_ms = 0,
          .doubt = "",
          .card = {}};
}

}  // namespace mkbench
