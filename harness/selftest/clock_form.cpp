#include "harness/selftest/clock_form.h"

#include <fmt/format.h>

#include "harness/measure/calibration.h"

namespace mkbench {

ClockForm clock_form(bool whole, bool cuda) {
  // Enough to compare kUsualProcesses processes; on a card 4 of the rounds have slow_2 and slow_5.
  constexpr int kLeast = 10;
  constexpr double kHard = 300;
  if (!whole) return {kLeast, 15, 15, kHard, 0};
  return {cuda ? kPowerRounds : 30, kPowerRounds, 100, kHard, 20};
}

bool takes_more_rounds(const ClockForm& form, int rounds, double seconds, bool told_apart) {
  if (rounds < form.least_rounds) return seconds <= form.hard_s;
  return rounds + kRoundsOfStep <= form.most_rounds && seconds <= form.most_s && !told_apart;
}

std::string rounds_problem(const ClockForm& form, int rounds, double seconds) {
  if (rounds >= form.least_rounds) return {};
  return fmt::format(
      "recording ended after {} rounds and {:.0f} s (at most {:g} s): wanted {} rounds, so that {} "
      "processes can be compared",
      rounds, seconds, form.hard_s, form.least_rounds, form.least_rounds / 2);
}

}  // namespace mkbench
