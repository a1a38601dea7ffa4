// The part of a report that says what an engine's ablations took (--ablations).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/measure/statistics.h"
#include "references/base/fields.h"

namespace mkbench {

// Ablations of an engine, for diagnosis: its time without waits, and its time without loads.
struct ProfileReport {
  std::vector<double> no_waits_runs_us, no_loads_runs_us;  // us a token
  // Written by aggregate().
  Number full_us, no_waits_us, no_loads_us;
  Number no_waits_fraction;  // the ceiling's time over no_waits_us
  std::string binds;         // "memory", "chain" (the waits) or "both"; empty if unknown
};

constexpr std::string_view struct_name(Tag<ProfileReport>) { return "profile"; }
template <typename V>
void describe_fields(V& v, Tag<ProfileReport>) {
  using P = ProfileReport;
  v.field("full_us", &P::full_us, "microseconds per token of the samples, median");
  v.field("no_waits_us", &P::no_waits_us,
          "microseconds per token when no block waits for another, median");
  v.field("no_loads_us", &P::no_loads_us,
          "microseconds per token when nothing is read from memory, median");
  v.field("binds", &P::binds,
          "memory if the time without waits is about the full time, chain if that without loads "
          "is; both if both or neither are");
  v.field("no_waits_fraction", &P::no_waits_fraction,
          "the ceiling's time over that of the run without waits");
  v.field("no_waits_runs_us", &P::no_waits_runs_us, "every run without waits, as taken");
  v.field("no_loads_runs_us", &P::no_loads_runs_us, "every run without loads, as taken");
}

// profile_reason of an engine in a run without --ablations.
inline constexpr char kProfileNotAsked[] = "not asked for (--ablations)";

}  // namespace mkbench
