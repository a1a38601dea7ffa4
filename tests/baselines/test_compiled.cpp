// The engine `compiled` on the CPU. The first test to run compiles the package of tiny's shape, which
// takes half a minute.
#include <string>

#include "tests/baselines/eager_lanes.h"
#include "tests/support/catch2.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("compiled equals the committed references") { check_all_tokens(kCompiledOnCpu); }

TEST_CASE("compiled meets the engine contract") { check_contract(kCompiledOnCpu); }
