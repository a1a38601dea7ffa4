// The eager baseline on a GPU: the checks and references of test_eager.
#include "baselines/eager.h"
#include "tests/baselines/eager_lanes.h"
#include "tests/support/catch2.h"

using namespace mkbench;
using namespace mkbench::testing;

#define NEEDS_GPU() \
  if (!torch_facts().cuda_available) SKIP_TEST("libtorch sees no GPU")

TEST_CASE("eager on CUDA equals the committed references, and faults planted in it change tokens") {
  NEEDS_GPU();
  check_eager(kCard);
}

TEST_CASE("eager on CUDA meets the engine contract") {
  NEEDS_GPU();
  check_contract(kCard);
}

TEST_CASE("graph on CUDA equals the committed references") {
  NEEDS_GPU();
  check_all_tokens(kGraphOnCard);
}

TEST_CASE("graph on CUDA meets the engine contract") {
  NEEDS_GPU();
  check_contract(kGraphOnCard);
}

// Its package is compiled on first use. Where that cannot be done, Error(kNotBuilt) fails the test:
// a machine with a GPU and set-up's Python has all that it takes.
TEST_CASE("compiled on CUDA equals the committed references and meets the engine contract") {
  NEEDS_GPU();
  check_all_tokens(kCompiledOnCard);
  check_contract(kCompiledOnCard);
}

TEST_CASE("the settings promise the architectures that libtorch was built for") {
  NEEDS_GPU();
  CHECK(torch_facts().architectures.find("sm_") != std::string::npos);
  const TorchCheck check = check_torch(/*cuda=*/true, 0);
  CAPTURE(check.error);
  CHECK(check.ok);
}
