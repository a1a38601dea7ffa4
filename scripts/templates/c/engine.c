/* A decoder of your own behind mkbench's C interface (engine_abi.h).
 *
 * The frame is complete: it checks the model, finds the weights, and keeps position and pending id.
 * What is missing is your kernel, in the function between "Your kernel begins" and "ends". Until
 * then it fails with its own name and line, and mkbench's verdict is RUNTIME_ERROR.
 *
 * mkbench calls one engine from one thread; several engines may be open at a time, so state belongs
 * in struct mkbench_engine. No work may go on after a call has returned, and no C++ exception may
 * leave a call. What you print goes to mkbench's stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_abi.h"

/* Weights are bf16, row-major [out, in], as Hugging Face stores them. They belong to mkbench, stay
 * valid until close(), and may only be read: a change ends in the verdict INTEGRITY. */
struct layer {
  const uint16_t* input_norm; /* [hidden] */
  const uint16_t* q;          /* [heads * head_dim, hidden] */
  const uint16_t* k;          /* [kv_heads * head_dim, hidden] */
  const uint16_t* v;          /* [kv_heads * head_dim, hidden] */
  const uint16_t* o;          /* [hidden, heads * head_dim] */
  const uint16_t* q_norm;     /* [head_dim], before RoPE, for each head */
  const uint16_t* k_norm;     /* [head_dim] */
  const uint16_t* post_norm;  /* [hidden] */
  const uint16_t* gate;       /* [intermediate, hidden] */
  const uint16_t* up;         /* [intermediate, hidden] */
  const uint16_t* down;       /* [hidden, intermediate] */
};

struct mkbench_engine {
  mkbench_model m;            /* sizes, rope_theta, rms_norm_eps */
  const uint16_t* embedding;  /* [vocab, hidden] */
  const uint16_t* final_norm; /* [hidden] */
  const uint16_t* head;       /* [vocab, hidden]; the embedding itself where m.tied */
  struct layer* layers;       /* [m.layers] */
  uint16_t* keys;             /* [layers, max_context, kv_heads * head_dim], after norm and RoPE */
  uint16_t* values;           /* [layers, max_context, kv_heads * head_dim] */
  int32_t max_context;        /* rows that the KV cache must hold */
  int32_t position;           /* KV rows written: the frame counts them */
  int32_t pending;            /* the input of the next step; -1: none */
  volatile int32_t running;   /* position of the running step */
  char error[256];
};

static int32_t fail(mkbench_engine* e, const char* what) {
  snprintf(e->error, sizeof e->error, "%s", what);
  return MKBENCH_FAILED;
}

/* ---- Your kernel begins -------------------------------------------------------------------- */

/* Embeds the id `token`, writes the KV row of `position`, and sets *next to the id of the largest
 * logit, the lowest id among equals. There is room for the row, the rows below it stand, and the id
 * is in [0, vocab).
 *   logits: NULL where the time is reported. Else [vocab], to be filled; NaN beforehand. A write past their
 *     end gives the verdict INTEGRITY. */
static int32_t step(mkbench_engine* e, int32_t token, int32_t position, float* logits,
                    int32_t* next) {
  (void)token;
  (void)position;
  (void)logits;
  (void)next;
  snprintf(e->error, sizeof e->error, "step is not written yet: %s:%d", __FILE__, __LINE__);
  return MKBENCH_FAILED;
}

/* ---- Your kernel ends ---------------------------------------------------------------------- */

static char open_error[256]; /* last_error(NULL) */

static int32_t refuse(int32_t why, const char* what) {
  snprintf(open_error, sizeof open_error, "%s", what);
  return why;
}

/* Finds a weight by name and checks its shape; a vector is [rows, 1]. */
static int32_t find(const mkbench_open* args, const char* name, int64_t rows, int64_t cols,
                    const uint16_t** at) {
  uint32_t i;
  for (i = 0; i < args->tensor_count; ++i) {
    mkbench_tensor t;
    mkbench_read(&t, sizeof t, args->tensors[i]);
    if (strcmp(t.name, name) != 0) continue;
    if (t.dtype == MKBENCH_BF16 && t.shape[0] == rows && t.shape[1] == cols) {
      *at = (const uint16_t*)t.data;
      return MKBENCH_OK;
    }
    snprintf(open_error, sizeof open_error,
             "%s: found [%lld, %lld] of type %d, wanted [%lld, %lld] of type %d", name,
             (long long)t.shape[0], (long long)t.shape[1], (int)t.dtype, (long long)rows,
             (long long)cols, (int)MKBENCH_BF16);
    return MKBENCH_UNFIT_MODEL;
  }
  snprintf(open_error, sizeof open_error, "%s: there is no such tensor", name);
  return MKBENCH_UNFIT_MODEL;
}

static int32_t find_layer(const mkbench_open* args, const mkbench_model* m, int32_t number,
                          struct layer* l) {
  const int64_t q_rows = (int64_t)m->heads * m->head_dim,
                kv_rows = (int64_t)m->kv_heads * m->head_dim;
  const struct {
    const char* name;
    int64_t rows, cols;
    const uint16_t** at;
  } wanted[] = {
      {"input_layernorm", m->hidden, 1, &l->input_norm},
      {"self_attn.q_proj", q_rows, m->hidden, &l->q},
      {"self_attn.k_proj", kv_rows, m->hidden, &l->k},
      {"self_attn.v_proj", kv_rows, m->hidden, &l->v},
      {"self_attn.o_proj", m->hidden, q_rows, &l->o},
      {"self_attn.q_norm", m->head_dim, 1, &l->q_norm},
      {"self_attn.k_norm", m->head_dim, 1, &l->k_norm},
      {"post_attention_layernorm", m->hidden, 1, &l->post_norm},
      {"mlp.gate_proj", m->intermediate, m->hidden, &l->gate},
      {"mlp.up_proj", m->intermediate, m->hidden, &l->up},
      {"mlp.down_proj", m->hidden, m->intermediate, &l->down},
  };
  size_t i;
  for (i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
    char name[80];
    int32_t status;
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", (int)number, wanted[i].name);
    status = find(args, name, wanted[i].rows, wanted[i].cols, wanted[i].at);
    if (status != MKBENCH_OK) return status;
  }
  return MKBENCH_OK;
}

static int32_t find_weights(const mkbench_open* args, mkbench_engine* e) {
  const mkbench_model* m = &e->m;
  int32_t i, status = find(args, "model.embed_tokens.weight", m->vocab, m->hidden, &e->embedding);
  if (status == MKBENCH_OK) status = find(args, "model.norm.weight", m->hidden, 1, &e->final_norm);
  if (status == MKBENCH_OK) status = find(args, "lm_head.weight", m->vocab, m->hidden, &e->head);
  for (i = 0; status == MKBENCH_OK && i < m->layers; ++i)
    status = find_layer(args, m, i, &e->layers[i]);
  return status;
}

static void close_engine(mkbench_engine* e) {
  if (e == NULL) return;
  free(e->layers);
  free(e->keys);
  free(e->values);
  free(e);
}

/* Makes an engine with an empty sequence. Refuse here, in one line, what your kernel has no code
 * for: MKBENCH_UNFIT_MODEL (a shape) ends as BAD_INPUT, MKBENCH_UNFIT_ENV (memory, processor) as
 * ENV_UNFIT. A kernel that is compiled for one model compares all of args->model with it. */
static int32_t open_engine(const mkbench_open* given, mkbench_engine** engine) {
  mkbench_open args;
  mkbench_model m;
  mkbench_engine* e;
  size_t rows, row;
  int32_t status;
  mkbench_read(&args, sizeof args, given);
  mkbench_read(&m, sizeof m, args.model);
  if (mkbench_unlike_qwen3(&m) != NULL)
    return refuse(MKBENCH_UNFIT_MODEL, mkbench_unlike_qwen3(&m));
  if (m.head_dim % 2 != 0 || m.heads % m.kv_heads != 0)
    return refuse(MKBENCH_UNFIT_MODEL, "heads: wanted an even head_dim and heads % kv_heads = 0");
  if (args.batch != 1) return refuse(MKBENCH_UNFIT_MODEL, "batch: wanted 1");
  e = (mkbench_engine*)calloc(1, sizeof *e);
  if (e == NULL) return refuse(MKBENCH_UNFIT_ENV, "no memory for the engine");
  e->m = m;
  e->max_context = args.max_context;
  e->pending = -1;
  rows = (size_t)m.layers * (size_t)args.max_context;
  row = sizeof(uint16_t) * (size_t)(m.kv_heads * m.head_dim);
  e->layers = (struct layer*)calloc((size_t)m.layers, sizeof *e->layers);
  e->keys = (uint16_t*)calloc(rows, row);
  e->values = (uint16_t*)calloc(rows, row);
  status = e->layers != NULL && e->keys != NULL && e->values != NULL
               ? find_weights(&args, e)
               : refuse(MKBENCH_UNFIT_ENV, "no memory for the KV cache");
  if (status != MKBENCH_OK) {
    close_engine(e);
    return status;
  }
  *engine = e;
  return MKBENCH_OK;
}

/* Empties the sequence. */
static int32_t reset(mkbench_engine* e) {
  e->position = 0;
  e->pending = -1;
  return MKBENCH_OK;
}

static int32_t run(mkbench_engine* e, int32_t token, float* logits, int32_t* next) {
  int32_t status;
  e->running = e->position;
  status = step(e, token, e->position, logits, next);
  if (status == MKBENCH_OK) ++e->position;
  return status;
}

/* Called once after open() or reset(): KV rows for all ids but the last, which becomes pending. */
static int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  int32_t i, unused, status = MKBENCH_OK;
  if (n - 1 > e->max_context - e->position) return fail(e, "prefill: the KV cache is full");
  for (i = 0; status == MKBENCH_OK && i + 1 < n; ++i) status = run(e, ids[i], NULL, &unused);
  e->pending = ids[n - 1];
  return status;
}

/* n steps: step 0 takes the pending id, a later one the id emitted before it. With forced ids step t
 * takes forced[t], and still emits the model's own choice. */
static int32_t decode(mkbench_engine* e, const mkbench_decode* given) {
  mkbench_decode d;
  int32_t t, status = MKBENCH_OK;
  mkbench_read(&d, sizeof d, given);
  if (d.n > e->max_context - e->position) return fail(e, "decode: the KV cache is full");
  if (d.late_id >= 0) e->pending = d.late_id; /* drawn at the last moment, while the clock runs */
  if (d.forced == NULL && e->pending < 0) return fail(e, "decode: no id is pending");
  for (t = 0; status == MKBENCH_OK && t < d.n; ++t) {
    float* row = d.logits != NULL ? d.logits + (size_t)t * (size_t)e->m.vocab : NULL;
    status = run(e, d.forced != NULL ? d.forced[t] : e->pending, row, &d.ids[t]);
    e->pending = d.ids[t];
  }
  return status;
}

/* Rows below `position` stay, the others count as never written; nothing is pending. Without this
 * function every timed block prefills its prompt again. */
static int32_t go_back(mkbench_engine* e, int32_t position) {
  e->position = position;
  e->pending = -1;
  return MKBENCH_OK;
}

/* Why the last call failed; with NULL, why open() did. */
static const char* last_error(mkbench_engine* e) { return e != NULL ? e->error : open_error; }

/* Read from another thread while decode() runs. */
static const volatile int32_t* progress(mkbench_engine* e) { return &e->running; }

const mkbench_engine_abi* mkbench_engine_table(void) {
  static mkbench_engine_abi table; /* what is not set is not offered */
  table.size = sizeof(mkbench_engine_abi);
  table.version = MKBENCH_ENGINE_ABI_VERSION;
  table.name = "@NAME@"; /* as reports show it */
  table.devices = MKBENCH_DEVICE_CPU;
  /* Add MKBENCH_NOT_DETERMINISTIC where equal input may give other bits. Leave out what you do
   * not offer: without logits, tokens alone are judged; without forced ids, prefill is called
   * more often. */
  table.can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID;
  /* How logits are judged: FP32_ACCUMULATE rounds only KV rows, RoPE table and one operand of
   * a product; BF16 rounds as PyTorch does, FP16 to fp16 at the same places; LOSSY is
   * quantised and ranked with no other. */
  table.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
  table.max_context = 0; /* the most positions; 0: any number */
  table.open = open_engine;
  table.close = close_engine;
  table.reset = reset;
  table.prefill = prefill;
  table.decode = decode;
  table.last_error = last_error;
  table.progress = progress;
  table.rewind = go_back;
  /* More is optional, as engine_abi.h says: save and restore (both or neither), show (hidden
   * states and KV rows, so that a report can say where an error begins), set_timeline and
   * phase_name (what each thread did when, for mkbench profile --timeline). */
  return &table;
}
