#include "harness/hosts/call_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/device/process_tree.h"
#include "harness/hosts/host_process.h"

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

ProcessWork work_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line, word;
  std::getline(file, line);
  // The name, in parentheses, may hold spaces. The state is field 3, the times are fields 14 to 17.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  fields >> word;
  ProcessWork work{.in_disk_wait = word == "D"};
  for (int field = 4; field < 14; ++field) fields >> word;
  double ticks = 0, one = 0;
  for (int field = 14; field <= 17 && fields >> one; ++field) ticks += one;
  work.cpu_s = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  for (const pid_t child : child_processes(process)) {
    const ProcessWork more = work_of(child);
    work.cpu_s += more.cpu_s;
    work.in_disk_wait = work.in_disk_wait || more.in_disk_wait;
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
  return fmt::format("{:.0f} s so far (its process {}{}), and at most {:.0f} s", so_far,
                     computes ? "works" : "is idle", busy ? ", the card is busy" : "",
                     std::min(limit.longest_s, limit.expected_s + excused_s_));
}

}  // namespace mkbench
