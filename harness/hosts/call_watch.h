// Looks at the host of a call that is awaited: whether it may be compiling, and what to tell of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "harness/wire/host_link.h"

namespace mkbench {

class CallWatch {
 public:
  // From tell_after_s on there is something to tell, and again whenever the time has doubled.
  explicit CallWatch(double tell_after_s) : tell_at_s_(tell_after_s) {}

  // To be called often while the call is awaited; looks twice a second, and at a call in which nothing
  // is compiled only before it tells, because looking takes time from the host. Returns what to
  // tell: "20 s so far (its process is idle) and is ended after 300 s"; mostly empty.
  std::string look(pid_t host, const CallLimit& limit, const std::function<bool()>& card_busy);
  // The time that does not count for CallLimit::expected_s.
  double excused_s() const { return excused_s_; }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  Clock::time_point looked_ = begin_;
  double cpu_s_ = -1;  // of the host at the last look; negative: none yet
  double excused_s_ = 0;
  double tell_at_s_;
};

}  // namespace mkbench
