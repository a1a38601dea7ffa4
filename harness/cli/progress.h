// Progress on stderr: a bar on a terminal, else an occasional line with the seconds since the start.
#pragma once

#include <string>

#include "harness/cli/command_line.h"
#include "harness/flow/events.h"

namespace mkbench {

// Whether the locale shows UTF-8: the first of LC_ALL, LC_CTYPE and LANG that is set decides.
bool locale_is_utf8(const EnvironmentLookup& lookup);

class ProgressDisplay {
 public:
  ProgressDisplay(bool quiet, bool verbose);
  ~ProgressDisplay() { clear(); }

  void start_case(const std::string& name, int number, int total);
  void show(const StageProgress& now);
  // Erases the bar before other text is printed.
  void clear();

 private:
  bool quiet_, verbose_, terminal_;
  std::string case_, last_stage_;
  bool bar_shown_ = false;
  const double begin_s_;
  double last_line_s_ = 0;
};

}  // namespace mkbench
