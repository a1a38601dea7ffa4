// The part of a report that says what the card did during an engine's samples.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/measure/statistics.h"
#include "references/base/fields.h"

namespace mkbench {

struct DroppedReason {
  std::string reason;  // a throttle reason as the driver names it, or "slow clock"
  int blocks = 0;
};

// Computed from the samples, including those of dropped blocks.
struct CardReport {
  int dropped = 0;      // blocks dropped because of this engine's samples
  int with_others = 0;  // blocks dropped because of another engine's samples
  int unfit = 0;        // blocks kept only because too many had been dropped already
  double share = 0;     // dropped and unfit blocks, as a share of all that were run
  std::vector<DroppedReason> reasons;
  std::optional<double> sm_clock_mhz;  // median
  Number energy_j;                     // joules a token
  double energy_s = 0;                 // seconds of samples that the energy counter covered
  // --telemetry alternate: time of a block in which the card is read, divided by its neighbour's
  // time, less 1; and the interval.
  Number watching_costs;
  std::optional<Interval> watching_costs_ci;
};

constexpr std::string_view struct_name(Tag<DroppedReason>) { return "dropped_reason"; }
template <typename V>
void describe_fields(V& v, Tag<DroppedReason>) {
  v.field("reason", &DroppedReason::reason, "throttle reason of the driver, or 'slow clock'");
  v.field("blocks", &DroppedReason::blocks, "blocks dropped or unfit for this reason");
}

constexpr std::string_view struct_name(Tag<CardReport>) { return "card"; }
template <typename V>
void describe_fields(V& v, Tag<CardReport>) {
  using C = CardReport;
  v.field("dropped", &C::dropped,
          "blocks dropped for this engine's samples: throttled, or more than 3 % below its median "
          "SM clock");
  v.field("with_others", &C::with_others, "blocks dropped for another engine's samples");
  v.field("unfit", &C::unfit,
          "blocks kept although this engine's samples were throttled or slow: too many had been "
          "dropped");
  v.field("share", &C::share, "dropped and unfit blocks, as a share of all that were run");
  v.field("reasons", &C::reasons, "dropped and unfit blocks by reason");
  v.field("sm_clock_mhz", &C::sm_clock_mhz, "SM clock of the samples by the driver, median");
  v.field("energy_j", &C::energy_j, "joules a token, from the card's energy counter");
  v.field("energy_s", &C::energy_s, "seconds of samples that the card's energy counter covered");
  v.field("watching_costs", &C::watching_costs,
          "how much longer blocks take in which the card is read (--telemetry alternate)");
  v.field("watching_costs_ci", &C::watching_costs_ci,
          "interval of watching_costs; null if all pairs are of one process and fewer than 8");
}

}  // namespace mkbench
