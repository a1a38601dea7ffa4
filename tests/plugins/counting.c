/* The engine ABI in C99, every function of it: a "model" whose next id depends on all ids so far,
 *
 *     next = (1 + 1 * row[0] + 2 * row[1] + ...) mod vocab
 *
 * A KV row is an id. COUNTING_FAULT in the environment, read by open(), names one fault; "bare" leaves
 * out every function that is optional. */
#include <stdlib.h>
#include <string.h>

#include "references/engine_abi.h"

struct mkbench_engine {
  const char* fault;
  int32_t vocab, max_context, position, pending;
  int32_t rows[4096];
  mkbench_span* spans;
  int32_t room;
};

static int has_fault(const mkbench_engine* e, const char* fault) {
  return strcmp(e->fault, fault) == 0;
}

static int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  mkbench_engine* e = (mkbench_engine*)calloc(1, sizeof *e);
  const char* fault = getenv("COUNTING_FAULT");
  if (e == NULL || args->max_context > 4096) {
    free(e);
    return MKBENCH_UNFIT_ENV;
  }
  if (args->batch != 1) {
    free(e);
    return MKBENCH_UNFIT_MODEL;
  }
  e->fault = fault != NULL ? fault : "";
  e->vocab = args->model->vocab;
  e->max_context = args->max_context;
  e->pending = -1;
  *engine = e;
  return MKBENCH_OK;
}

static void close_engine(mkbench_engine* e) { free(e); }

static int32_t reset(mkbench_engine* e) {
  e->position = 0;
  e->pending = -1;
  return MKBENCH_OK;
}

static int32_t step(mkbench_engine* e, int32_t id) {
  int64_t sum = 1;
  int32_t i;
  e->rows[e->position++] = id;
  for (i = 0; i < e->position; ++i) sum += (int64_t)(i + 1) * e->rows[i];
  return (int32_t)(sum % e->vocab);
}

static int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  int32_t i;
  for (i = 0; i + 1 < n; ++i) step(e, ids[i]);
  e->pending = ids[n - 1];
  return MKBENCH_OK;
}

static int32_t decode(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                      float* logits) {
  int32_t t;
  (void)logits;
  if (e->position + n > e->max_context || (forced == NULL && e->pending < 0)) return MKBENCH_FAILED;
  for (t = 0; t < n; ++t) {
    ids[t] = e->pending = step(e, forced != NULL ? forced[t] : e->pending);
    /* Two spans a step, the later one first, and a gap between the steps. */
    if (e->spans != NULL && 3 * t + 1 < e->room) {
      const uint64_t at = 100u * (uint64_t)t;
      const mkbench_span late = {0, 1, at + 50, at + 90}, early = {1, 0, at, at + 50};
      e->spans[3 * t] = late;
      e->spans[3 * t + 1] = early;
      if (has_fault(e, "span order")) e->spans[0].t1_ns = 0;
      if (has_fault(e, "span block")) e->spans[0].block = -1;
      if (has_fault(e, "span phase")) e->spans[1].phase = -7;
      if (has_fault(e, "span room")) e->spans[e->room] = early;
    }
  }
  if (has_fault(e, "prefix")) e->rows[0] ^= 1;
  return MKBENCH_OK;
}

static const char* last_error(mkbench_engine* e) { return e != NULL ? e->fault : NULL; }

static int32_t set_pending(mkbench_engine* e, int32_t id) {
  if (has_fault(e, "set_pending fails")) return MKBENCH_FAILED;
  if (!has_fault(e, "set_pending ignored")) e->pending = id;
  return MKBENCH_OK;
}

static int32_t go_back(mkbench_engine* e, int32_t position) {
  if (has_fault(e, "rewind fails")) return MKBENCH_FAILED;
  e->position = position + has_fault(e, "rewind one short");
  e->pending = -1;
  return MKBENCH_OK;
}

static uint64_t checksum(const mkbench_engine* e, int32_t position) {
  uint64_t sum = 1469598103934665603u;
  int32_t i;
  for (i = 0; i < position; ++i) sum = (sum ^ (uint64_t)e->rows[i]) * 1099511628211u;
  return sum;
}

static int32_t save(mkbench_engine* e, mkbench_snapshot* snapshot) {
  if (has_fault(e, "save fails")) return MKBENCH_FAILED;
  snapshot->position = e->position + has_fault(e, "save position");
  snapshot->pending = e->pending;
  snapshot->kv_checksum = checksum(e, e->position);
  snapshot->derived_count = has_fault(e, "save derived") ? MKBENCH_MAX_DERIVED + 1 : 2;
  snapshot->derived[0] = 0.5f;
  snapshot->derived[1] = (float)e->position;
  return MKBENCH_OK;
}

static int32_t restore(mkbench_engine* e, const mkbench_snapshot* snapshot) {
  if (checksum(e, snapshot->position) != snapshot->kv_checksum) return MKBENCH_CHANGED;
  if (snapshot->derived_count != 2 || snapshot->derived[1] != (float)snapshot->position) {
    return MKBENCH_FAILED;
  }
  e->position = snapshot->position;
  e->pending = snapshot->pending;
  return MKBENCH_OK;
}

static int32_t set_timeline(mkbench_engine* e, mkbench_span* spans, int32_t room) {
  e->spans = spans;
  e->room = room;
  return MKBENCH_OK;
}

/* Not a position: it shows a test whether a timeline is asked for. */
static const volatile int32_t* progress(mkbench_engine* e) { return &e->room; }

static const char* phase_name(int32_t phase) { return phase == 0 ? "attention" : NULL; }

const mkbench_engine_abi* mkbench_engine_table(const mkbench_abi_sizes* host) {
  static const mkbench_engine_abi bare = {.sizes = MKBENCH_ABI_SIZES,
                                          .name = "counting",
                                          .devices = MKBENCH_DEVICE_CPU,
                                          .can = MKBENCH_CAN_FORCED,
                                          .open = open_engine,
                                          .close = close_engine,
                                          .reset = reset,
                                          .prefill = prefill,
                                          .decode = decode,
                                          .last_error = last_error};
  static mkbench_engine_abi table;
  const char* fault = getenv("COUNTING_FAULT");
  table = bare;
  if (fault == NULL || strcmp(fault, "bare") != 0) {
    table.can = MKBENCH_NOT_DETERMINISTIC | MKBENCH_ONE_LAUNCH;
    table.progress = progress;
    table.precision = MKBENCH_PRECISION_LOSSY;
    table.set_pending = fault != NULL && strcmp(fault, "no set_pending") == 0 ? NULL : set_pending;
    table.rewind = go_back;
    table.save = save;
    table.restore = restore;
    table.set_timeline = set_timeline;
    table.phase_name = phase_name;
  }
  return mkbench_abi_suits(host) ? &table : NULL;
}
