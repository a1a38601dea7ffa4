// naive_cpu.cpp with one change: the last token of every 50th call of decode() is another one than the input asks
// for, as a race leaves it. `mkbench soak` must see it.
#include "tests/plugins/changed_cpu.h"

namespace {

constexpr int kEvery = 50;

int32_t seldom_wrong_decode(mkbench_engine* e, const mkbench_decode* args) {
  static int calls = 0;
  const int32_t status = decode(e, args);
  if (++calls % kEvery == 0) args->ids[args->n - 1] ^= 1;
  return status;
}

void change(mkbench_engine_abi& table) { table.decode = seldom_wrong_decode; }

}  // namespace
