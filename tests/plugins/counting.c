/* The engine ABI in C99, every function of it: a "model" whose next id depends on all ids so far,
 *
 *     next = (1 + 1 * row[0] + 2 * row[1] + ...) mod vocab
 *
 * A KV row is an id. COUNTING_FAULT in the environment, read by open(), names one fault; "bare" leaves
 * out every function that is optional. */
#include <stdlib.h>
#include <string.h>

#include "references/engine_abi.h"

/* What save() keeps beside the rows, which stay where they are. */
struct saved {
  int32_t position, pending;
  uint64_t checksum;
};

static uint32_t can; /* as the table says */

struct mkbench_engine {
  const char* fault;
  uint32_t can;
  int32_t resets;
  int32_t vocab, max_context, position, pending;
  int32_t rows[4096];
  struct saved slots[MKBENCH_SLOTS];
  mkbench_span* spans;
  int32_t room;
};

static int has_fault(const mkbench_engine* e, const char* fault) {
  return strcmp(e->fault, fault) == 0;
}

static int32_t open_engine(const mkbench_open* given, mkbench_engine** engine) {
  mkbench_engine* e = (mkbench_engine*)calloc(1, sizeof *e);
  const char* fault = getenv("COUNTING_FAULT");
  mkbench_open args;
  mkbench_model model;
  mkbench_read(&args, sizeof args, given);
  mkbench_read(&model, sizeof model, args.model);
  if (e == NULL || args.max_context > 4096) {
    free(e);
    return MKBENCH_UNFIT_ENV;
  }
  if (args.batch != 1 || args.gpu != -1 || args.model == NULL) {
    free(e);
    return MKBENCH_UNFIT_MODEL;
  }
  e->fault = fault != NULL ? fault : "";
  e->can = can;
  e->vocab = model.vocab;
  e->max_context = args.max_context;
  e->pending = -1;
  *engine = e;
  return MKBENCH_OK;
}

static void close_engine(mkbench_engine* e) { free(e); }

static int32_t reset(mkbench_engine* e) {
  e->position = 0;
  e->pending = -1;
  ++e->resets;
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

static int32_t decode(mkbench_engine* e, const mkbench_decode* given) {
  mkbench_decode args;
  int32_t t;
  mkbench_read(&args, sizeof args, given);
  /* What it may not be given. */
  if (args.late_id >= 0 && (args.forced != NULL || args.vectors != NULL)) return MKBENCH_FAILED;
  if (args.late_id >= 0 && (e->can & MKBENCH_CAN_LATE_ID) == 0) return MKBENCH_FAILED;
  if (args.forced != NULL && (e->can & MKBENCH_CAN_FORCED) == 0) return MKBENCH_FAILED;
  if (args.late_id >= 0) {
    if (has_fault(e, "late id fails")) return MKBENCH_FAILED;
    if (!has_fault(e, "late id ignored")) e->pending = args.late_id;
  }
  if (e->position + args.n > e->max_context) return MKBENCH_FAILED;
  if (args.forced == NULL && e->pending < 0) return MKBENCH_FAILED;
  for (t = 0; t < args.n; ++t) {
    args.ids[t] = e->pending = step(e, args.forced != NULL ? args.forced[t] : e->pending);
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

static int32_t go_back(mkbench_engine* e, int32_t position) {
  if (has_fault(e, "rewind fails")) return MKBENCH_FAILED;
  e->position = position + has_fault(e, "rewind one short");
  e->pending = -1;
  return MKBENCH_OK;
}

static uint64_t checksum(const mkbench_engine* e, int32_t position) {
  uint64_t sum = 1469598103934665603u;
  int32_t i;
  if (has_fault(e, "weak checksum")) return sum;
  for (i = 0; i < position; ++i) sum = (sum ^ (uint64_t)e->rows[i]) * 1099511628211u;
  return sum;
}

static int32_t save(mkbench_engine* e, int32_t slot, uint64_t* sum) {
  struct saved* to = &e->slots[slot];
  to->position = e->position;
  to->pending = e->pending;
  to->checksum = *sum = checksum(e, e->position);
  return has_fault(e, "save fails") && e->position > 4 ? MKBENCH_FAILED : MKBENCH_OK;
}

static int32_t restore(mkbench_engine* e, int32_t slot) {
  const struct saved* from = &e->slots[slot];
  if (has_fault(e, "restore fails")) return MKBENCH_FAILED;
  if (checksum(e, from->position) != from->checksum) return MKBENCH_CHANGED;
  e->position = from->position;
  e->pending = from->pending;
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

/* The id of a row, or the position; the layer; the number of calls of reset(). */
static int32_t show(mkbench_engine* e, const mkbench_show* given) {
  mkbench_show args;
  mkbench_read(&args, sizeof args, given);
  if (has_fault(e, "show fails")) return MKBENCH_FAILED;
  if (args.what == MKBENCH_SHOW_HIDDEN && has_fault(e, "rows alone")) return MKBENCH_NOT_SHOWN;
  args.out[0] = (float)(args.what == MKBENCH_SHOW_KV_ROW ? e->rows[args.position] : args.position);
  args.out[1] = (float)args.layer;
  args.out[2] = (float)e->resets;
  return MKBENCH_OK;
}

/* A table as a later header may have it. */
struct longer {
  mkbench_engine_abi table;
  void (*later)(void);
};

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi bare = {.size = sizeof(mkbench_engine_abi),
                                          .version = MKBENCH_ENGINE_ABI_VERSION,
                                          .name = "counting",
                                          .devices = MKBENCH_DEVICE_CPU,
                                          .can = MKBENCH_CAN_FORCED,
                                          .open = open_engine,
                                          .close = close_engine,
                                          .reset = reset,
                                          .prefill = prefill,
                                          .decode = decode,
                                          .last_error = last_error};
  static struct longer longer;
  mkbench_engine_abi* table = &longer.table;
  const char* fault = getenv("COUNTING_FAULT");
  if (fault == NULL) fault = "";
  *table = bare;
  can = table->can;
  if (strcmp(fault, "bare") == 0) return table;
  can = MKBENCH_NOT_DETERMINISTIC | MKBENCH_ONE_LAUNCH;
  if (strcmp(fault, "no late id") != 0) can |= MKBENCH_CAN_LATE_ID;
  if (strcmp(fault, "hidden alone") != 0) can |= MKBENCH_CAN_VECTORS;
  if (strcmp(fault, "vectors") == 0 || strcmp(fault, "hidden alone") == 0)
    can |= MKBENCH_CAN_HIDDEN;
  table->can = can;
  table->progress = progress;
  table->precision = strcmp(fault, "fp16") == 0 ? MKBENCH_PRECISION_FP16 : MKBENCH_PRECISION_LOSSY;
  table->max_context = 4097;
  table->rewind = go_back;
  table->save = save;
  table->restore = restore;
  table->set_timeline = set_timeline;
  table->phase_name = phase_name;
  table->show = show;
  if (strcmp(fault, "longer table") == 0) table->size = sizeof longer;
  if (strcmp(fault, "shorter table") == 0) table->size = offsetof(mkbench_engine_abi, rewind);
  return table;
}
