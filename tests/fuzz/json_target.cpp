// The mutator of one target whose input is JSON behind MKBENCH_FUZZ_PREFIX bytes.
#include "tests/fuzz/input.h"

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return mkbench::fuzz::mutate_json(data, size, max_size, seed, MKBENCH_FUZZ_PREFIX);
}
