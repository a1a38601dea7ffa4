#include "harness/flow/ceiling.h"

#include "references/base/error.h"

namespace mkbench {

Sample ceiling_sample(const std::function<std::string(Sample&)>& pass) {
  constexpr int kMostDoubts = 2;
  Sample all;
  for (int passes = 0; passes < kCeilingPasses && all.times.host_ms < kCeilingMs;) {
    Sample one;
    const std::string doubt = pass(one);
    if (!doubt.empty()) {
      if (++all.repeats > kMostDoubts) throw Error(ErrorKind::kIntegrity, doubt);
      continue;
    }
    if (passes++ == 0) all.start_ms = one.start_ms;
    all.tokens += one.tokens;
    all.times.host_ms += one.times.host_ms;
    all.times.event_ms += one.times.event_ms;
    all.times.device_ms += one.times.device_ms;
  }
  all.valid = true;
  return all;
}

}  // namespace mkbench
