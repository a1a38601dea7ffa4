// A program that does not end by itself is ended, with all that it has started.
#include <signal.h>

#include <chrono>
#include <thread>

#include "harness/device/program_output.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST_CASE("a program that ends is read to its end") {
  const ProgramOutput told =
      program_output({"sh", "-c", "echo \"$1\"; echo lost >&2", "sh", "it's"}, {});
  CHECK(told.text == "it's\n");
  CHECK(!told.ended);
  CHECK(program_output({"/no/such/program"}, {}).text.empty());
  CHECK(program_output({"cat"}, {}).text.empty());  // stdin is empty
  CHECK(program_output({"head", "-c", "300000", "/dev/zero"}, {}).text.size() == 300'000);
}

TEST_CASE("a program that stands still is ended in time, and so is what it has started") {
  const Clock::time_point begin = Clock::now();
  const ProgramOutput told = program_output(
      {"sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; sleep 600"}, {.seconds = 0.5});
  CHECK(told.ended);
  CHECK(seconds_since(begin) < 30);
  const pid_t started = std::stoi(told.text);
  bool gone = false;
  for (int i = 0; i < 500 && !gone; ++i) {
    gone = kill(started, 0) != 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(gone);
}

TEST_CASE("a program is ended when it is asked for, also where it has closed its stdout") {
  const Clock::time_point begin = Clock::now();
  int asked = 0;
  CHECK(program_output({"sleep", "600"}, {.seconds = 600, .stop = [&] { return ++asked > 2; }})
            .ended);
  CHECK(program_output({"sh", "-c", "exec >&-; exec sleep 600"}, {.seconds = 600}).ended);
  CHECK(seconds_since(begin) < 60);
}

}  // namespace
}  // namespace mkbench
