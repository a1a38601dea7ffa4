// Runs a part of a test in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch2.h"

namespace mkbench::testing {

// Runs `body` in a forked child and returns its exit code, 99 for an exception.
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace mkbench::testing
