// A timeline as a file of Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "references/timeline.h"

namespace mkbench {

struct TraceHead {
  std::string title;              // "ring d=512 n=16"
  int steps = 0;                  // of the decode
  std::vector<double> frames_us;  // end of each step (measure/timeline_summary.h)
};

// A viewer takes some hundred thousand spans at ease, and a file of them has 25 MB: of longer decodes the last steps are written.
inline constexpr int64_t kMostTraceSpans = 200'000;

// The first step of which spans are written, so that at most `most` are; 0: all steps. The last step is always
// written whole.
int first_traced_step(const Timeline& timeline, int steps, int64_t most = kMostTraceSpans);

// Writes a process a block and a thread a role, and before them one with the tokens as frames. Spans are complete
// events ("X") with microseconds since the first span; their category is the kind.
void write_trace(std::ostream& out, const Timeline& timeline, const TraceHead& head,
                 int first_step);

}  // namespace mkbench
