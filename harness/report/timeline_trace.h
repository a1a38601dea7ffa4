// A timeline as a file of Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "references/timeline.h"

namespace mkbench {

struct TraceHead {
  std::string title;              // for example "ring d=512 n=16"
  std::vector<double> frames_us;  // when each step ended (TimelineSummary::frames_us)
};

// A viewer shows some hundred thousand spans at ease; a file of so many has 25 MB. Of a longer decode
// only the last steps are written.
inline constexpr int64_t kMostTraceSpans = 200'000;

// The first step of which spans are written, so that at most `most` are; 0: all steps. The last step is always
// written whole.
int first_traced_step(const Timeline& timeline, int steps, int64_t most = kMostTraceSpans);

// Writes a process a block and a thread a role, and before them one with the tokens as frames. Spans are complete
// events ("X") with microseconds since the first span; their category is the kind.
void write_trace(std::ostream& out, const Timeline& timeline, const TraceHead& head,
                 int first_step);

}  // namespace mkbench
