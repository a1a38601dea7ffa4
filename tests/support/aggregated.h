// Cases that are summed up, and what must hold where their times are withheld.
#pragma once

#include "harness/judge/conclude.h"
#include "harness/report/report.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

// As if all samples of a case had been taken in one process.
inline void into_one_process(CaseReport& c) {
  for (Sample& s : c.ceiling.samples) s.process = 0;
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) s.process = 0;
  }
}

inline CaseReport aggregated(CaseReport c) {
  aggregate(c, 0.95, 1, false);
  return c;
}

inline void check_withheld(const EngineReport& e) {
  CHECK_FALSE(e.ms_per_tok);
  CHECK_FALSE(e.times_withheld.empty());
  for (const Number* n : {&e.tok_per_s, &e.tok_per_s_ci_low, &e.tok_per_s_ci_high, &e.itl_p50_ms,
                          &e.itl_p90_ms, &e.itl_p99_ms, &e.host_ms, &e.gpu_ms, &e.prefill_ms,
                          &e.ttft_ms, &e.first_token_ms, &e.sm_ghz, &e.share}) {
    CHECK_FALSE(n->value);
    CHECK_FALSE(n->reason.empty());
  }
  CHECK_FALSE(e.share_ci);
  CHECK(e.share_note.empty());
}

}  // namespace mkbench::testing
