// How an engine was warmed up before its samples.
#pragma once

#include <optional>
#include <string_view>

#include "references/base/fields.h"

namespace mkbench {

// A warm-up by time ends when two consecutive windows of runs agree.
inline constexpr double kWarmWindowS = 0.5, kWarmAgreement = 0.003, kMostWarmUpS = 10;

struct WarmUp {
  int process = 0;
  int runs = 0;
  double seconds = 0;  // duration of the whole warm-up
  // Relative change between the last two windows: of the time a token (or a whole prefill), and of
  // the SM clock if the engine reads it. Absent if the warm-up ended before two windows were full.
  std::optional<double> time_change, clock_change;
  bool settled = false;
};

constexpr std::string_view struct_name(Tag<WarmUp>) { return "warm_up"; }
template <typename V>
void describe_fields(V& v, Tag<WarmUp>) {
  v.field("process", &WarmUp::process, "which of the engine's processes, from 0");
  v.field("runs", &WarmUp::runs, "untimed runs");
  v.field("seconds", &WarmUp::seconds, "seconds of the warm-up, with what lies between its runs");
  v.field("time_change", &WarmUp::time_change,
          "change of the time a token (or a whole prefill) between the last two windows of 0.5 s, "
          "as a share");
  v.field("clock_change", &WarmUp::clock_change,
          "change of the SM clock between the last two windows; null where it is not read");
  v.field("settled", &WarmUp::settled,
          "whether both changes are within 0.3 %; false: 10 s did not suffice");
}

}  // namespace mkbench
