// naive_cpu.cpp, slowed down by a share of its time (slowed.h).
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/naive_cpu.cpp"
#undef mkbench_engine_table

#include <chrono>

namespace slowed {

template <typename Work>
int32_t decode_and_wait(double share, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const int32_t status = work();
  const auto end = begin + (1 + share) * std::chrono::duration<double>(Clock::now() - begin);
  while (Clock::now() < end) {
  }
  return status;
}

}  // namespace slowed

#include "tests/plugins/slowed.h"

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table() {
  return slowed::slowed_table(sound_engine_table(),
                              reinterpret_cast<const void*>(&mkbench_engine_table));
}
