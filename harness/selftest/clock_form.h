// How many rounds `mkbench selftest --timing` records to test the clock.
#pragma once

#include <string>

namespace mkbench {

// Rounds come in steps of kRoundsOfStep: least_rounds, then more until engines slowed by 1, 2 and
// 5 % are seen to be slower, at most most_rounds.
struct ClockForm {
  int least_rounds, most_rounds;
  double most_s;  // after this long, no step begins beyond least_rounds
  double
      hard_s;  // after this long, no step begins; if least_rounds are not reached, no calibration
  int live;    // number of A/A runs end to end
};
inline constexpr int kRoundsOfStep = 5;

// `whole`: the long form, of --calibrate; else the short one. A round on a card takes a second or
// two, depending on the host. On a card the long form has at least kPowerRounds rounds: a
// calibration that ended after 100 s (H100) had 55, too few to compare 30 processes.
ClockForm clock_form(bool whole, bool cuda);

// True if another step of rounds begins. `told_apart`: the slowed engines are seen to be slower.
bool takes_more_rounds(const ClockForm& form, int rounds, double seconds, bool told_apart);

// Why `rounds` rounds are too few; empty if they are enough.
std::string rounds_problem(const ClockForm& form, int rounds, double seconds);

}  // namespace mkbench
