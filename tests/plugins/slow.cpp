// naive_cpu.cpp with one change: it sleeps SLOW_US microseconds for each token, in prefill() too, as
// an engine does that prefills token by token. With SLOW_WRONG every id from position 25 on is
// wrong; with SLOW_HANGS the first call of decode() after a wrong id does not return.
// tests/plugin/test_slow_engines.py gives the expected verdicts.
#include <unistd.h>

#include "tests/plugins/changed_cpu.h"

#ifndef SLOW_WRONG
#define SLOW_WRONG 0
#endif
#ifndef SLOW_HANGS
#define SLOW_HANGS 0
#endif

namespace {

constexpr int32_t kFirstWrong = 25;

bool gave_a_wrong_id = false;

void take_time(mkbench_engine* e, int32_t tokens) {
  for (int32_t t = 0; t < tokens; ++t) {
    e->running = e->position + t;
    usleep(SLOW_US);
  }
}

int32_t slow_prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  take_time(e, n - 1);
  return prefill(e, ids, n);
}

int32_t slow_decode(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                    float* logits) {
  if (SLOW_HANGS && gave_a_wrong_id) {
    for (;;) pause();
  }
  take_time(e, n);
  const int32_t first = e->position;
  const int32_t status = decode(e, n, forced, ids, logits);
  for (int32_t t = 0; SLOW_WRONG && t < n; ++t) {
    if (first + t < kFirstWrong) continue;
    gave_a_wrong_id = true;
    const int32_t wrong = ids[t] ^ 1;
    // The logits say the same, so the engine is wrong but consistent.
    if (logits != nullptr) {
      float* row = logits + size_t(t) * size_t(e->m.vocab);
      row[wrong] = row[ids[t]] + 1;
    }
    ids[t] = wrong;
  }
  return status;
}

void change(mkbench_engine_abi& table) {
  table.prefill = slow_prefill;
  table.decode = slow_decode;
}

}  // namespace
