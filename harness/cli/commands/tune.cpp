// `mkbench tune`: measures ring's fastest settings on a card (copies in flight, least gap between
// them, the context length from which attention is split). The result is committed as a row of
// kernels/ring/tuning.cpp.
#include "harness/cli/commands/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/cli/progress.h"
#include "harness/report/print_stderr.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

const TunedTime& quickest(const std::vector<TunedTime>& times) {
  return *std::min_element(times.begin(), times.end(),
                           [](const TunedTime& a, const TunedTime& b) { return a.us < b.us; });
}

// The finer sweep tries gaps of its own for each number of copies in flight: some cells stay empty.
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

// Prints us/token for each value of the setting that a sweep varied.
void print_times(std::string_view title, int TunedTime::*varied,
                 const std::vector<TunedTime>& times) {
  fmt::print("\n{}\n", title);
  const TunedTime* best = &quickest(times);
  for (const TunedTime& time : times) {
    fmt::print("{:>8}{:>9.1f}{}\n", time.*varied, time.us, &time == best ? "*" : "");
  }
}

Tuned measure(Hosts& hosts, const CardSettings& settings, const std::string& model) {
  ProgressDisplay progress(settings.quiet, settings.verbose);
  const auto say = [&](const std::string& stage) {
    progress.show({.stage = "tune: " + stage, .engine = kRingName});
  };
  const Tuned result = ask<Tuned>(hosts.about_card(), TuneCall{settings.gpu, model},
                                  {settings.timeout_s, settings.timeout_s}, say);
  progress.clear();
  return result;
}

int tune_command(const CardSettings& settings, const Invocation& invocation) {
  Hosts hosts(invocation.start_host, settings.timeout_s);
  const Tuned result = measure(hosts, settings, TuneCall{}.model);
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

}  // namespace

void tune_jobs(std::vector<CaseJob>& jobs, Hosts& hosts, const CardSettings& settings,
               nlohmann::json& calibration) try {
  for (CaseJob& job : jobs) {
    if (!has_engine(job, kRingName)) continue;
    const std::string& model = job.model.name;
    job.ring_row = json_text(calibration, {"ring_tuning", model.c_str()});
    if (!job.ring_row.empty()) continue;
    job.ring_row = measure(hosts, settings, model).table_row;
    calibration["ring_tuning"][model] = job.ring_row;
    print_stderr("mkbench: {}: row for kernels/ring/tuning.cpp: {}\n", model, job.ring_row);
  }
} catch (const Interrupted&) {
  // The caller sees the interrupt and reaches no case.
}

CommandRow tune_row() {
  return command_row<CardSettings>("tune", "sweep the ring megakernel's tuning on a card", "",
                                   flags_of<CardSettings>(card_flags(), in_process_flags()),
                                   nullptr, tune_command);
}

}  // namespace mkbench
