#include "harness/plugin/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "harness/plugin/handle.h"
#include "references/base/error.h"

namespace mkbench {

Timeline checked_timeline(const std::string& who, const std::vector<mkbench_span>& spans,
                          const char* (*phase_name)(int32_t)) {
  Timeline timeline;
  mkbench_span unwritten;
  std::memset(&unwritten, 0xff, sizeof unwritten);
  for (size_t i = 0; i < spans.size(); ++i) {
    const mkbench_span& span = spans[i];
    if (std::memcmp(&span, &unwritten, sizeof span) == 0) continue;
    if (span.block < 0 || span.phase < 0 || span.t1_ns < span.t0_ns) {
      throw Error(
          ErrorKind::kRuntime,
          fmt::format("{}: timeline: span {}: found block {}, phase {}, {} to {} ns, wanted "
                      "a block and a phase from 0 and an end after the begin",
                      who, i, span.block, span.phase, span.t0_ns, span.t1_ns));
    }
    timeline.spans.push_back(span);
    if (timeline.phase_names.count(span.phase) > 0) continue;
    const char* name = phase_name != nullptr ? phase_name(span.phase) : nullptr;
    timeline.phase_names[span.phase] =
        name != nullptr ? plugin_text(name) : fmt::format("phase {}", span.phase);
  }
  std::sort(timeline.spans.begin(), timeline.spans.end(),
            [](const mkbench_span& a, const mkbench_span& b) {
              return std::tie(a.t0_ns, a.block) < std::tie(b.t0_ns, b.block);
            });
  return timeline;
}

}  // namespace mkbench
