// How many rounds `mkbench selftest --timing` records to try the clock.
#pragma once

#include <string>

namespace mkbench {

// Rounds come in steps of kRoundsOfStep: at least least_rounds, then until the slow-downs are told
// apart, and at most most_rounds.
struct ClockForm {
  int least_rounds, most_rounds;
  double most_s;  // after this long, no step beyond the least begins
  double
      hard_s;  // after this long, no step begins; with fewer rounds than the least, no calibration
  int live;    // A/A runs end to end
};
inline constexpr int kRoundsOfStep = 5;

// With --calibrate the whole form, else the short one. A round of a card takes a second or two,
// depending on its host, and a calibration of 55 rounds (100 s, H100) lost the row of 30 processes that shows
// its power. So a card's whole form takes the rounds of that row, however long they take.
ClockForm clock_form(bool whole, bool cuda);

// Whether a further step of rounds begins. `told_apart`: `rounds` rounds tell the slow-downs apart.
bool takes_more_rounds(const ClockForm& form, int rounds, double seconds, bool told_apart);

// Why `rounds` rounds are too few; empty if they are enough.
std::string rounds_problem(const ClockForm& form, int rounds, double seconds);

}  // namespace mkbench
