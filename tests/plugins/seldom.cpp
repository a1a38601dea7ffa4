// naive_cpu.cpp with one change: the last token of every 50th call of decode() is another one than the input asks
// for, as a race leaves it. `mkbench soak` must see it.
#define mkbench_engine_table sound_table
#include "tests/plugins/naive_cpu.cpp"
#undef mkbench_engine_table

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table(
    const mkbench_abi_sizes* host);

namespace {

constexpr int kEvery = 50;

int32_t seldom_wrong_decode(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                            float* logits) {
  static int calls = 0;
  const int32_t status = decode(e, n, forced, ids, logits);
  if (++calls % kEvery == 0) ids[n - 1] ^= 1;
  return status;
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(const mkbench_abi_sizes* host) {
  const mkbench_engine_abi* sound = sound_table(host);
  if (sound == nullptr) return nullptr;
  static mkbench_engine_abi table = *sound;
  table.decode = seldom_wrong_decode;
  return &table;
}
