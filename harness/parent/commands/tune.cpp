// `mkbench tune`: which pace suits this card. The facts of a card (copies in flight, least distance
// between them, from where on the context is split) are measured here once and then committed as a
// row of kernels/ring/tuning.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/parent/launch.h"
#include "harness/parent/options.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

const TunedTime& quickest(const std::vector<TunedTime>& times) {
  return *std::min_element(times.begin(), times.end(),
                           [](const TunedTime& a, const TunedTime& b) { return a.us < b.us; });
}

// Gaps differ by the number of copies in flight only where the finer sweep went.
void print_sweep(const TuneSweep& sweep) {
  std::set<int> gaps;
  std::map<int, std::map<int, double>> by_copies;
  for (const TunedTime& time : sweep.times) {
    gaps.insert(time.gap);
    by_copies[time.in_flight][time.gap] = time.us;
  }
  fmt::print("\ndepth {}: us/token by copies in flight (down) and gap in cycles (across)\n{:>8}",
             sweep.depth, "");
  for (const int gap : gaps) fmt::print("{:>9}", gap);
  const TunedTime& best = quickest(sweep.times);
  for (const auto& [in_flight, times] : by_copies) {
    fmt::print("\n{:>8}", in_flight);
    for (const int gap : gaps) {
      const auto found = times.find(gap);
      if (found == times.end()) {
        fmt::print("{:>9}", "");
        continue;
      }
      const bool is_best = best.in_flight == in_flight && best.gap == gap;
      fmt::print("{:>8.1f}{}", found->second, is_best ? '*' : ' ');
    }
  }
  fmt::print("\n");
}

// us/token by one number of the setting.
void print_times(std::string_view title, int TunedTime::*varied,
                 const std::vector<TunedTime>& times) {
  fmt::print("\n{}\n", title);
  const TunedTime* best = &quickest(times);
  for (const TunedTime& time : times) {
    fmt::print("{:>8}{:>9.1f}{}\n", time.*varied, time.us, &time == best ? "*" : "");
  }
}

}  // namespace

int tune_command(const Options& options, const Invocation&) {
  const auto answer = ask_worker<TuneAnswer>(TuneJob{options.gpu}, options.timeout_s);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok()) {
    throw Error(answer.hung ? ErrorKind::kHang : answer.kind, answer.problem);
  }
  const TuneAnswer& result = *answer.message;
  fmt::print("ring on {}: {} tokens a launch, medians of {} launches by CUDA events; * quickest\n",
             result.gpu, result.tokens, result.launches);
  for (const TuneSweep& sweep : result.sweeps) print_sweep(sweep);
  print_times("LM head: us/token at depth 0 by copies in flight", &TunedTime::in_flight,
              result.head);
  print_times(fmt::format("split_from: us/token over positions {} to {}", result.split_depth,
                          result.split_depth + result.split_tokens - 1),
              &TunedTime::split_from, result.splits);
  fmt::print("\nrow for kernels/ring/tuning.cpp:\n    {}\n", result.table_row);
  return 0;
}

}  // namespace mkbench
