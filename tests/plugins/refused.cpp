// A library that mkbench refuses; each build has one reason (-DREFUSED_VERSION and so on).
#include "references/engine_abi.h"

#ifdef REFUSED_SYMBOL

extern "C" int another_function() { return 1; }

#else

namespace {

int32_t open_engine(const mkbench_open*, [[maybe_unused]] mkbench_engine** engine) {
#if defined(REFUSED_OPEN)
  return MKBENCH_UNFIT_MODEL;
#elif defined(REFUSED_ENVIRONMENT)
  return MKBENCH_UNFIT_ENV;
#else
  *engine = nullptr;
  return MKBENCH_OK;
#endif
}
void close_engine(mkbench_engine*) {}
int32_t reset(mkbench_engine*) { return MKBENCH_OK; }
int32_t prefill(mkbench_engine*, const int32_t*, int32_t) { return MKBENCH_OK; }
int32_t decode(mkbench_engine*, const mkbench_decode*) { return MKBENCH_OK; }
const char* last_error(mkbench_engine*) { return "hidden is 128,\nwanted 4096"; }

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static mkbench_engine_abi table{};
  table.size = sizeof table;
  table.version = MKBENCH_ENGINE_ABI_VERSION;
  table.name = "refused";
  table.devices = MKBENCH_DEVICE_CPU;
  table.open = open_engine;
  table.close = close_engine;
  table.reset = reset;
  table.prefill = prefill;
  table.decode = decode;
  table.last_error = last_error;
#if defined(REFUSED_NULL)
  return nullptr;
#elif defined(REFUSED_VERSION)
  table.version = 5;
#elif defined(REFUSED_SIZE)
  table.size = 0;
#elif defined(REFUSED_NAME)
  table.name = "a/../b";
#elif defined(REFUSED_FUNCTION)
  table.decode = nullptr;
#elif defined(REFUSED_PRECISION)
  table.precision = MKBENCH_PRECISION_FP16 + 1;
#elif defined(REFUSED_DEVICE)
  table.devices = MKBENCH_DEVICE_CUDA;
#endif
  return &table;
}

#endif
