// Summary of a timeline: where the time goes, by phase, and which block the others wait for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/base/fields.h"
#include "references/timeline.h"

namespace mkbench {

// Microseconds by what was done (references/span_kind.h).
struct KindTimes {
  double body = 0, exchange = 0, weights = 0, hand_off = 0, room = 0;
  double other = 0;  // between spans

  double& of(SpanKind kind);
  double total() const { return body + exchange + weights + hand_off + room + other; }
  void add(const KindTimes& more, double factor = 1);

  static void fields(auto& v) {
    list_fields(v, "body", &KindTimes::body, "exchange", &KindTimes::exchange, "weights",
                &KindTimes::weights, "hand_off", &KindTimes::hand_off, "room", &KindTimes::room,
                "other", &KindTimes::other);
  }
};

// One phase of one role: a mean over blocks and steps, all layers together.
struct PhaseTimes {
  std::string role, phase;
  KindTimes us;  // per step

  static void fields(auto& v) {
    list_fields(v, "role", &PhaseTimes::role, "phase", &PhaseTimes::phase, "us", &PhaseTimes::us);
  }
};

// A phase on the critical path. For each execution of a phase, the path follows the block that ends
// it last, from the end of the previous execution to that block's end. This time is split by what
// the block did meanwhile.
struct PathPart {
  std::string phase;
  bool per_layer = false;
  int executions = 0;
  KindTimes us;           // per execution
  int last_block = -1;    // the block that most often ended the phase last
  double last_share = 0;  // share of executions that it ended last
  double spread_us = 0;   // mean time from the median block's end to the last block's end

  static void fields(auto& v) {
    list_fields(v, "phase", &PathPart::phase, "per_layer", &PathPart::per_layer, "executions",
                &PathPart::executions, "us", &PathPart::us, "last_block", &PathPart::last_block,
                "last_share", &PathPart::last_share, "spread_us", &PathPart::spread_us);
  }
};

struct TimelineSummary {
  int blocks = 0, layers = 0;  // layers: 0 if no phase is known to belong to a layer
  int steps = 0;               // tokens of the decode
  int whole_steps = 0;         // leading steps without a lost span; the times below cover them
  int64_t spans = 0, lost = 0;
  int64_t overlapping = 0;         // spans that begin before an earlier one of their track ends
  double step_us = 0;              // critical path of a step
  double layer_us = 0;             // critical path of a layer
  std::vector<PhaseTimes> phases;  // role by role
  std::vector<PathPart> path;      // in the order of execution
  int slowest_block = -1;          // the block that most often ended a phase last
  double slowest_share = 0;        // share of executions that it ended last
  std::vector<double> frames_us;   // end of each step, since the first span's begin

  static void fields(auto& v) {
    using S = TimelineSummary;
    list_fields(v, "blocks", &S::blocks, "steps", &S::steps, "whole_steps", &S::whole_steps,
                "layers", &S::layers, "spans", &S::spans, "lost", &S::lost, "overlapping",
                &S::overlapping, "step_us", &S::step_us, "layer_us", &S::layer_us, "phases",
                &S::phases, "path", &S::path, "slowest_block", &S::slowest_block, "slowest_share",
                &S::slowest_share, "frames_us", &S::frames_us);
  }
};

// `steps`: tokens of the decode. Spans with an unknown step count only in `phases`. Where spans of
// a track overlap, the time counts for the span that began last.
TimelineSummary summarize_timeline(const Timeline& timeline, int steps);

// An execution of a phase: which block ended it last, and when.
struct PhaseEnd {
  int step = -1, layer = -1, phase = 0, last_block = -1;
  int64_t begin_ns = 0, end_ns = 0;  // begin: the end of the previous execution
  int64_t median_ns = 0;             // the median block's end
};

// All executions in the order of their ends.
std::vector<PhaseEnd> phase_ends(const Timeline& timeline, int steps);

}  // namespace mkbench
