// The part of a report that says what an engine's timed decode takes when it is asked for logits as
// well: an engine may do less where nobody looks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/measure/statistics.h"
#include "references/base/fields.h"

namespace mkbench {

// What handing logits over costs in one process: decodes of a few tokens after a single id, in
// turn without logits and with them.
struct HandoverTimes {
  int process = 0, tokens = 0;
  std::vector<double> bare_ms, shown_ms;
};

// A decode like the timed one of the same block, asked for logits as well.
struct ObservedDecode {
  int process = 0, block = 0, tokens = 0;
  double host_ms = 0;
};

// ObservedReport::reason of baselines, and of cases whose candidates are not observed.
inline constexpr char kObservedNotAsked[] = "not asked for";

struct ObservedReport {
  std::string reason;  // why no block was observed; else empty
  std::vector<HandoverTimes> handovers;
  std::vector<ObservedDecode> decodes;
  // Written by fill_observed() (judge/observed.h).
  Number ms_per_tok, handover_ms, quicker;
  std::optional<Interval> quicker_ci;
  std::string caution;
};

constexpr std::string_view struct_name(Tag<HandoverTimes>) { return "handover"; }
template <typename V>
void describe_fields(V& v, Tag<HandoverTimes>) {
  using H = HandoverTimes;
  v.field("process", &H::process, "which of the engine's processes, from 0");
  v.field("tokens", &H::tokens, "tokens of each decode, after a single id");
  v.field("bare_ms", &H::bare_ms, "decodes without logits, host clock");
  v.field("shown_ms", &H::shown_ms, "decodes with logits, each after one without");
}

constexpr std::string_view struct_name(Tag<ObservedDecode>) { return "observed_decode"; }
template <typename V>
void describe_fields(V& v, Tag<ObservedDecode>) {
  using O = ObservedDecode;
  v.field("process", &O::process, "which of the engine's processes took it, from 0");
  v.field("block", &O::block, "block whose sample it followed");
  v.field("tokens", &O::tokens, "tokens decoded");
  v.field("host_ms", &O::host_ms, "the decode with logits, host clock");
}

constexpr std::string_view struct_name(Tag<ObservedReport>) { return "observed"; }
template <typename V>
void describe_fields(V& v, Tag<ObservedReport>) {
  using R = ObservedReport;
  v.field("reason", &R::reason, "why no block was observed; else empty");
  v.field("handovers", &R::handovers, "what handing logits over costs, by process");
  v.field("decodes", &R::decodes, "timed decodes that were asked for logits as well");
  v.field("ms_per_tok", &R::ms_per_tok, "milliseconds a token of these decodes");
  v.field("handover_ms", &R::handover_ms, "the part of it that handing logits over explains");
  v.field("quicker", &R::quicker,
          "time of an observed decode, less handing over, over that of its block's sample: exp of "
          "the mean log ratio, in each process and then over processes");
  v.field("quicker_ci", &R::quicker_ci,
          "99 % interval of quicker, computed like a speed-up's; null if there are too few blocks");
  v.field("caution", &R::caution,
          "'quicker where nobody looks' with both times, if the interval shows it; else empty");
}

}  // namespace mkbench
