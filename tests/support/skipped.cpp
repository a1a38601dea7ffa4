#include "tests/support/catch2.h"

namespace mkbench::testing {

bool& skipped() {
  static bool value = false;
  return value;
}

}  // namespace mkbench::testing
