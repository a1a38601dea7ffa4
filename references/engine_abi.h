/*
 * The C interface by which mkbench judges and times a decoder that it was not built with:
 *
 *     mkbench parity --engine ./mine.so        mkbench --engine ./mine.so
 *
 * A shared library exports one function, mkbench_engine_table(), which returns a table of
 * functions. This header is all that it needs: C99 or C++, no other file of mkbench, nothing to
 * link against. tests/plugins/naive_cpu.cpp and naive_cuda.cu are complete examples.
 *
 * mkbench calls the functions of one engine from one thread. Text is UTF-8, ends with 0, and stays
 * valid until the next call of the same engine. Functions that return int32_t return MKBENCH_OK or
 * one of the failures below; last_error() then says what happened.
 *
 * mkbench refuses a library that was built against another version of this header, and says so.
 */
#ifndef MKBENCH_REFERENCES_ENGINE_ABI_H
#define MKBENCH_REFERENCES_ENGINE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or the meaning of a call changes. */
#define MKBENCH_ENGINE_ABI_VERSION 3u

#if defined(__GNUC__)
#define MKBENCH_ENGINE_EXPORT __attribute__((visibility("default")))
#else
#define MKBENCH_ENGINE_EXPORT
#endif

/* How a call ended. */
enum {
  MKBENCH_OK = 0,
  MKBENCH_FAILED = 1,      /* anything else: the verdict is RUNTIME_ERROR */
  MKBENCH_UNFIT_MODEL = 2, /* open() only: the engine has no code for this model: BAD_INPUT */
  MKBENCH_UNFIT_ENV = 3,   /* open() only: memory, driver, architecture: ENV_UNFIT */
  MKBENCH_CHANGED = 4      /* restore() only: the snapshot's rows have changed: INTEGRITY */
};

/* Where tensors and outputs of decode() lie; also the bits of mkbench_engine_abi.devices. */
enum { MKBENCH_DEVICE_CPU = 1, MKBENCH_DEVICE_CUDA = 2 };

/* Bits of mkbench_engine_abi.can. Without logits the ids alone are judged, and checks of logits are
 * reported as not applicable; without forced ids mkbench forces an id by set_pending(), or, without
 * that too, prefills again. */
enum {
  MKBENCH_CAN_LOGITS = 1,        /* decode() fills `logits` */
  MKBENCH_CAN_FORCED = 2,        /* decode() obeys `forced` */
  MKBENCH_NOT_DETERMINISTIC = 4, /* equal input may give other bits: atomics, split reductions */
  MKBENCH_ONE_LAUNCH = 8         /* a whole decode() is one kernel launch */
};

/* What the engine claims about its arithmetic: the limits of its logits depend on it. */
enum {
  MKBENCH_PRECISION_BF16 = 0,            /* rounds as PyTorch does with bf16 */
  MKBENCH_PRECISION_FP32_ACCUMULATE = 1, /* rounds KV rows, RoPE table, one operand a product */
  MKBENCH_PRECISION_LOSSY = 2            /* quantised; is never ranked beside the others */
};

enum { MKBENCH_BF16 = 1 };

/* Version and struct sizes that one side was compiled with. mkbench hands its own to
 * mkbench_engine_table() and compares those that come back, so that neither side reads a struct
 * that the other lays out differently. */
typedef struct mkbench_abi_sizes {
  uint32_t version; /* MKBENCH_ENGINE_ABI_VERSION; stays the first word in every version */
  uint32_t abi;     /* sizeof(mkbench_engine_abi) */
  uint32_t model;   /* sizeof(mkbench_model) */
  uint32_t tensor;  /* sizeof(mkbench_tensor) */
  uint32_t open;    /* sizeof(mkbench_open) */
} mkbench_abi_sizes;

/* Initialises a mkbench_abi_sizes with what this header says. */
#define MKBENCH_ABI_SIZES                                                  \
  {                                                                        \
    MKBENCH_ENGINE_ABI_VERSION, (uint32_t)sizeof(mkbench_engine_abi),      \
        (uint32_t)sizeof(mkbench_model), (uint32_t)sizeof(mkbench_tensor), \
        (uint32_t)sizeof(mkbench_open)                                     \
  }

/* A Qwen3 model, as its config.json says. */
typedef struct mkbench_model {
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  int32_t tied; /* 1: lm_head.weight is the embedding's own memory */
  double rope_theta, rms_norm_eps;
} mkbench_model;

/* A weight: row-major, Hugging Face's name and shape. */
typedef struct mkbench_tensor {
  const char* name; /* "model.layers.0.self_attn.q_proj.weight" */
  const void* data; /* aligned to 256 bytes; in host memory, or on the device of open() */
  uint64_t bytes;
  int64_t shape[2]; /* [out, in]; a vector is [n, 1] with rank 1 */
  int32_t rank;     /* 1 or 2 */
  int32_t dtype;    /* MKBENCH_BF16 */
} mkbench_tensor;

/* The arguments of open(). Model, tensors and names stay valid until close(). The tensors belong to
 * mkbench and are read only: a change to one ends in the verdict INTEGRITY. */
typedef struct mkbench_open {
  const mkbench_model* model;
  const mkbench_tensor* tensors; /* tensor_count tensors, lm_head.weight even if it is tied */
  uint32_t tensor_count;
  int32_t device;      /* MKBENCH_DEVICE_CPU or MKBENCH_DEVICE_CUDA: one that the engine offers */
  int32_t gpu;         /* CUDA ordinal, current on this thread; -1 on a CPU */
  int32_t max_context; /* positions that the KV cache must hold */
  int32_t batch;       /* sequences that are decoded at a time: always 1 */
} mkbench_open;

/* A place in the sequence to which restore() goes back. The rows themselves are not copied: those
 * below `position` stay where they are. */
#define MKBENCH_MAX_DERIVED 1024
typedef struct mkbench_snapshot {
  int32_t position;
  int32_t pending;      /* -1: none */
  uint64_t kv_checksum; /* over the KV rows below position: differs if a row differs */
  int32_t derived_count;
  float derived[MKBENCH_MAX_DERIVED]; /* what the engine needs besides the rows, if anything */
} mkbench_snapshot;

/* What one thread block (on a CPU: one thread) did from t0 to t1. */
typedef struct mkbench_span {
  int32_t block, phase;  /* from 0; phase_name() names the phase */
  uint64_t t0_ns, t1_ns; /* begin and end by one clock of the engine: %globaltimer on a GPU */
} mkbench_span;

typedef struct mkbench_engine mkbench_engine; /* defined by the library */

/* What mkbench_engine_table() returns: static storage, never changed. */
typedef struct mkbench_engine_abi {
  mkbench_abi_sizes sizes; /* MKBENCH_ABI_SIZES */
  const char* name;        /* up to 40 of letters, digits, '.', '_', '-': as reports show it */
  uint32_t devices;        /* MKBENCH_DEVICE_CPU, MKBENCH_DEVICE_CUDA or both */
  uint32_t can;            /* MKBENCH_CAN_... */

  /* Makes an engine with an empty sequence. Several may be open at a time. */
  int32_t (*open)(const mkbench_open* args, mkbench_engine** engine);
  void (*close)(mkbench_engine* engine);

  /* Empties the sequence: position 0, nothing pending. */
  int32_t (*reset)(mkbench_engine* engine);

  /* Called once after open() or reset(), n >= 1. `ids` is host memory. Writes the KV rows of
   * ids[0] .. ids[n - 2]; ids[n - 1] becomes pending: the input of the next step. */
  int32_t (*prefill)(mkbench_engine* engine, const int32_t* ids, int32_t n);

  /* n greedy steps. A step embeds its input id at the current position, writes one KV row, and
   * emits the id of the largest logit, the lowest id among equals. The input of step 0 is the
   * pending id, the input of a later step is the id emitted before it; the last id emitted is
   * pending afterwards.
   *   forced: NULL, or host memory with n ids that are the inputs instead, the first one in place
   *     of the pending id. The emitted ids are still the model's own choice. NULL without
   *     MKBENCH_CAN_FORCED.
   *   ids: n emitted ids, in memory of the device (host memory on a CPU). mkbench fills them with
   *     -1 beforehand: an id that is still -1 afterwards was not generated.
   *   logits: NULL, or fp32 [n, vocab] in memory of the device, NaN beforehand. NULL without
   *     MKBENCH_CAN_LOGITS, and always NULL when the clock runs.
   * The clock runs until this call has returned and all work of the device is done. */
  int32_t (*decode)(mkbench_engine* engine, int32_t n, const int32_t* forced, int32_t* ids,
                    float* logits);

  /* Why the last call failed, or, with engine NULL, why open() failed. The function may be NULL,
   * and it may return NULL. */
  const char* (*last_error)(mkbench_engine* engine);

  /* Host memory that holds the position of the running step. mkbench reads it from another thread
   * while decode() runs, so that a report can say where a kernel hung. The function may be NULL,
   * and it may return NULL. */
  const volatile int32_t* (*progress)(mkbench_engine* engine);

  /* Everything below may be 0 or NULL: not offered. */

  int32_t precision; /* MKBENCH_PRECISION_... */

  /* Replaces the pending id; writes no KV row. A timed block draws an id at the last moment, calls
   * this and then decode(), both on the clock; work of the device need not be done on return.
   * Without it mkbench calls decode(1) with the id forced and then decode(n - 1). An engine that
   * offers neither this nor forced ids is labelled "no late id". */
  int32_t (*set_pending)(mkbench_engine* engine, int32_t id);

  /* Goes back to `position`, 0 to the number of KV rows written: the rows below it stay, the others
   * count as never written. Nothing is pending then: set_pending(), decode() with forced ids or
   * reset() comes next. Called only where the engine offers one of the first two. Without it every
   * timed block prefills its prompt again. */
  int32_t (*rewind)(mkbench_engine* engine, int32_t position);

  /* save() fills *snapshot, which is all zero beforehand. restore() goes back to a snapshot of this
   * sequence: rows below its position stay, and snapshot->pending becomes pending (mkbench may have
   * changed that field since save()). restore() returns MKBENCH_CHANGED if the checksum of these
   * rows has changed. An engine offers both functions or neither. */
  int32_t (*save)(mkbench_engine* engine, mkbench_snapshot* snapshot);
  int32_t (*restore)(mkbench_engine* engine, const mkbench_snapshot* snapshot);

  /* From now on each decode() fills `spans`, memory of the device with room for `room` spans, with
   * its own spans, in any order, gaps allowed. NULL switches this off, as before the first call.
   * mkbench fills `spans` with bytes 0xff beforehand: a span whose block stays -1 is not written.
   * Spans are never asked for when the clock runs. phase_name() returns NULL or a name of the form
   * "[ROLE/]PHASE[: KIND]". ROLE is the part of a block that works (default: block). KIND is body
   * (the default: it works) or says what it waits for: exchange (other blocks), weights (weights or
   * KV rows), hand-off (another part of its block), room (room to load ahead).
   * Examples: "loader/qkv: room", "attention: exchange". */
  int32_t (*set_timeline)(mkbench_engine* engine, mkbench_span* spans, int32_t room);
  const char* (*phase_name)(int32_t phase);

  /* decode() for a trunk that is one part of a model, such as the talker of Qwen3-TTS: the inputs
   * of the n steps are vectors in the place of embedding rows, and hidden vectors come out. All
   * four arrays are memory of the device (host memory on a CPU).
   *   vectors: bf16 [n, hidden], all finite, or NULL: ids, as in decode() with `forced` NULL. With
   *     vectors no id needs to be pending, and a pending one is dropped: it writes no KV row. The
   *     last id emitted is pending afterwards.
   *   ids: n emitted ids, as in decode().
   *   logits: as in decode().
   *   hidden: NULL, or fp32 [n, hidden], NaN beforehand: after the final norm, as the LM head reads
   *     it. */
  int32_t (*decode_vectors)(mkbench_engine* engine, int32_t n, const uint16_t* vectors,
                            int32_t* ids, float* logits, float* hidden);
} mkbench_engine_abi;

/* The one exported function. Returns NULL where mkbench_abi_suits(host) is 0. */
#define MKBENCH_ENGINE_ABI_SYMBOL "mkbench_engine_table"
MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table(const mkbench_abi_sizes* host);

/* Whether `host` was compiled with this header's version and sizes. */
static inline int mkbench_abi_suits(const mkbench_abi_sizes* host) {
  const mkbench_abi_sizes mine = MKBENCH_ABI_SIZES;
  return host->version == mine.version && host->abi == mine.abi && host->model == mine.model &&
         host->tensor == mine.tensor && host->open == mine.open;
}

#ifdef __cplusplus
}
#endif

#endif
