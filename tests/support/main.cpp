// The one main of all test executables: 0 passed, 1 failed, 77 skipped (CTest's SKIP_RETURN_CODE),
// whatever Catch2's version returns.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch2.h"

int main(int argc, char* argv[]) {
  const int failures = Catch::Session().run(argc, argv);
  if (failures != 0) return 1;
  return mkbench::testing::skipped() ? 77 : 0;
}
