// A timeline in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.
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

// Viewers handle some hundred thousand spans well; a file with this many has 25 MB. If a decode
// has more, only its last steps are written.
inline constexpr int64_t kMostTraceSpans = 200'000;

// The first step to write, so that at most `most` spans are written; 0: all steps are. The last
// step is always written whole.
int first_traced_step(const Timeline& timeline, int steps, int64_t most = kMostTraceSpans);

// Writes one process per block with one thread per role, after a process with the tokens as frames.
// Spans are complete events ("X"), in microseconds since the first span, with the kind as category.
void write_trace(std::ostream& out, const Timeline& timeline, const TraceHead& head,
                 int first_step);

}  // namespace mkbench
