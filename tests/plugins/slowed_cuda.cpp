// The plain megakernel as a library, slowed down by a share of its time on the card (slowed.h).
// naive_cuda.cu does not serve here: its launches differ by several percent between processes.
#define mkbench_engine_table sound_engine_table
#include "kernels/exported/library.cpp"
#undef mkbench_engine_table

namespace slowed {

void begin_work();  // slowed_wait.cu
bool wait_for_share(double share);

// The sound copies launch both kernels too, so that the wait is the only difference.
template <typename Work>
int32_t decode_and_wait(double share, const Work& work) {
  begin_work();
  const int32_t status = work();
  const bool waited = wait_for_share(share);
  return status == MKBENCH_OK && !waited ? MKBENCH_FAILED : status;
}

}  // namespace slowed

#include "tests/plugins/slowed.h"

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table() {
  return slowed::slowed_table(sound_engine_table(),
                              reinterpret_cast<const void*>(&mkbench_engine_table));
}
