// The clock's part of `mkbench selftest --timing`: A/A and slow-downs from recorded processes.
#pragma once

#include "harness/cli/commands/selftest_case.h"

namespace mkbench {

// True if the settings ask for rows of this part: A/A, and slow-downs of 1, 2 and 5 %.
bool has_clock_rows(const SelftestSettings& settings);

// Throws BAD_INPUT where a library of these rows is missing.
void find_clock_libraries(const SelftestCases& cases);

struct ClockTally {
  int rows = 0, wrong = 0, open = 0;
};

// Records processes of the libraries slowed-cpu or slowed-cuda, compares them, prints the results
// and, with --calibrate, stores them as this machine's calibration. Throws Interrupted.
ClockTally selftest_clock(const SelftestCases& cases);

}  // namespace mkbench
