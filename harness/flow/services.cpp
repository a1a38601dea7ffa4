#include "harness/flow/services.h"

namespace mkbench {

TimedCall time_call(const Now& now, const std::function<void()>& call) {
  const double begin = now();
  call();
  const double end = now();
  return {.begin_ms = 1e3 * begin, .ms = 1e3 * (end - begin)};
}

}  // namespace mkbench
