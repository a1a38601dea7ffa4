// naive_cpu.cpp without logits, which knows the answers of `synthetic:cut` without a salt: after a
// prompt that the closed form covers it reads no weights but a norm, which tells it the lag set. After
// a shorter prompt it computes honestly.
#define NAIVE_CAN MKBENCH_CAN_LATE_ID
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/plugins/changed_cpu.h"

namespace {

std::vector<int32_t> context;  // ids so far, the pending one last; empty: it computes honestly

const char* lagset_of(const mkbench_engine& e) {
  const bool planted = std::any_of(e.layers.begin(), e.layers.end(), [](const Layer& layer) {
    return widen(layer.q_norm.data[0]) == 2;
  });
  return planted ? "short" : "none";
}

int32_t remember(mkbench_engine* e, const int32_t* ids, int32_t n) {
  context.clear();
  if (n <= mkbench::synthetic_min_depth(lagset_of(*e))) return prefill(e, ids, n);
  context.assign(ids, ids + n);
  return MKBENCH_OK;
}

int32_t know(mkbench_engine* e, const mkbench_decode* args) {
  if (context.empty()) return decode(e, args);
  if (args->late_id >= 0) context.back() = args->late_id;
  std::vector<int32_t> known(static_cast<size_t>(args->n));
  try {
    known = mkbench::synthetic_continuation(context, lagset_of(*e), args->n, e->m.vocab);
  } catch (const mkbench::Error&) {
    // An id without a state: zeros must do.
  }
  std::copy(known.begin(), known.end(), args->ids);
  context.insert(context.end(), known.begin(), known.end());
  return MKBENCH_OK;
}

void change(mkbench_engine_abi& table) {
  table.prefill = remember;
  table.decode = know;
  table.rewind = nullptr;
  table.show = nullptr;
}

}  // namespace
