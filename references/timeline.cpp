#include "references/timeline.h"

#include <algorithm>
#include <map>

namespace mkbench {

void keep_first_steps(Timeline& timeline, int64_t most) {
  const auto count = static_cast<int64_t>(timeline.spans.size());
  if (count <= most) return;
  std::map<int, int64_t> of_step;  // step (-1: not known) -> count of its spans
  for (const TimelineSpan& span : timeline.spans) ++of_step[span.step];
  int64_t kept = of_step[-1];
  int whole = 0;
  while (of_step.count(whole) > 0 && kept + of_step[whole] <= most) kept += of_step[whole++];
  std::erase_if(timeline.spans, [&](const TimelineSpan& span) { return span.step >= whole; });
  // If too many spans have no step, the earliest are kept.
  if (kept > most) {
    std::vector<int64_t> begins;
    for (const TimelineSpan& span : timeline.spans) begins.push_back(span.t0_ns);
    std::nth_element(begins.begin(), begins.begin() + most, begins.end());
    const int64_t end = begins[static_cast<size_t>(most)];
    std::erase_if(timeline.spans, [&](const TimelineSpan& span) { return span.t0_ns >= end; });
  }
  timeline.lost += count - static_cast<int64_t>(timeline.spans.size());
  timeline.whole_steps = timeline.whole_steps < 0 ? whole : std::min(timeline.whole_steps, whole);
}

}  // namespace mkbench
