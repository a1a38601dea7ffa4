// Progress on stderr: a bar where a person looks on, a line now and then where a log is written.
#pragma once

#include <chrono>
#include <string>

#include "harness/wire/messages.h"

namespace mkbench {

class ProgressDisplay {
 public:
  ProgressDisplay(bool quiet, bool verbose);
  ~ProgressDisplay() { clear(); }

  void start_case(const std::string& name, int number, int total);
  void show(const StageProgress& now);
  // Takes the bar away before other text.
  void clear();

 private:
  bool quiet_, verbose_, terminal_;
  std::string case_, last_stage_;
  bool bar_shown_ = false;
  std::chrono::steady_clock::time_point last_line_{};
};

}  // namespace mkbench
