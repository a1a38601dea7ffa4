#include "harness/hosts/call_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/device/process_tree.h"

namespace mkbench {
namespace {

constexpr double kLookSeconds = 0.5;
// A host computes if it takes this share of a core: an idle one, which answers for its progress,
// takes less than a hundredth.
constexpr double kWorkingShare = 0.05;

// What a process and its descendants have done so far.
struct ProcessWork {
  double cpu_s = 0;
  bool in_disk_wait = false;  // now
};

ProcessWork work_of(pid_t host) {
  std::vector<ProcessSeen> all = processes_below(host);
  all.push_back(process_of(host));
  ProcessWork work;
  for (const ProcessSeen& one : all) {
    work.cpu_s += one.cpu_s;
    work.in_disk_wait = work.in_disk_wait || one.state == 'D';
  }
  return work;
}

}  // namespace

std::string CallWatch::look(pid_t host, const CallLimit& limit,
                            const std::function<bool()>& card_busy) {
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double since = seconds_since(looked_), so_far = seconds_since(begin_);
  if (since < kLookSeconds) return "";
  if (limit.compiling == Compiling::kNo && so_far < tell_at_s_ - kLookSeconds) return "";
  const ProcessWork work = work_of(host);
  const bool computes =
      cpu_s_ >= 0 && (work.in_disk_wait || work.cpu_s - cpu_s_ > kWorkingShare * since);
  const bool busy = card_busy();
  if (computes && (limit.compiling == Compiling::kFirstCall ||
                   (limit.compiling == Compiling::kLaterCall && !busy)))
    excused_s_ += since;
  looked_ = Clock::now();
  cpu_s_ = work.cpu_s;
  if (so_far < tell_at_s_) return "";
  tell_at_s_ *= 2;
  const double still = limit.expected_s + excused_s_;
  return fmt::format(
      "{:.0f} s so far (its process {}{}) and is ended after {:.0f} s{}", so_far,
      computes ? "works" : "is idle", busy ? ", the card is busy" : "", limit.longest_s,
      still < limit.longest_s ? fmt::format(", or after {:.0f} s if it shows no progress", still)
                              : "");
}

}  // namespace mkbench
