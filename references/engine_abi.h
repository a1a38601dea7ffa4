/*
 * The C interface by which mkbench judges and times a decoder that it was not built with:
 *
 *     mkbench parity --engine ./mine.so        mkbench --engine ./mine.so
 *
 * A shared library exports one function, mkbench_engine_table(), which returns a table of
 * functions. This header is all that it needs: C99 or C++, no other file of mkbench, nothing to
 * link against. tests/plugins/naive_cpu.cpp is a complete example. step_engine.h, in C++, makes the
 * table from a class that decodes one token at a time.
 *
 * mkbench calls the functions of one engine from one thread. Text is UTF-8, ends with 0, and stays
 * valid until the next call of the same engine. Functions that return int32_t return MKBENCH_OK or
 * one of the failures below; last_error() then says what happened.
 *
 * Every struct that one side hands to the other begins with its size, as the side that fills it in
 * was compiled. New fields are added at the end, so either side may have the older header: who reads
 * a struct copies it by mkbench_read() first, and takes a field that the other side does not have
 * for 0 or NULL, which stands for what was done before there was the field.
 */
#ifndef MKBENCH_REFERENCES_ENGINE_ABI_H
#define MKBENCH_REFERENCES_ENGINE_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised if a field or a call changes its meaning, and once anything was released also for a field of
 * mkbench_model, because an older engine cannot refuse what it does not see; not for other fields.
 * mkbench refuses a library of another version, and says so. */
#define MKBENCH_ENGINE_ABI_VERSION 4u

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
  MKBENCH_CHANGED = 4,     /* restore() only: the rows of the saved state have changed: INTEGRITY */
  MKBENCH_NOT_SHOWN = 5    /* show() only: the engine does not show this */
};

/* Where tensors, vectors and outputs of decode() lie; also the bits of mkbench_engine_abi.devices. */
enum { MKBENCH_DEVICE_CPU = 1, MKBENCH_DEVICE_CUDA = 2 };

/* Bits of mkbench_engine_abi.can. An argument of decode() whose bit is missing is never given.
 * Without logits the ids alone are judged, and checks of logits are reported as not applicable.
 * Without late ids mkbench decodes one step with the id forced, then the others; without forced ids
 * it gives each of them as a late id; an engine that has neither is prefilled again, and labelled
 * "no late id". */
enum {
  MKBENCH_CAN_LOGITS = 1,         /* mkbench_decode.logits */
  MKBENCH_CAN_FORCED = 2,         /* mkbench_decode.forced */
  MKBENCH_CAN_LATE_ID = 4,        /* mkbench_decode.late_id */
  MKBENCH_CAN_VECTORS = 8,        /* mkbench_decode.vectors */
  MKBENCH_CAN_HIDDEN = 16,        /* mkbench_decode.hidden */
  MKBENCH_NOT_DETERMINISTIC = 32, /* equal input may give other bits: atomics, split reductions */
  MKBENCH_ONE_LAUNCH = 64         /* a whole decode() is one kernel launch */
};

/* What the engine claims about its arithmetic: the limits of its logits depend on it. */
enum {
  MKBENCH_PRECISION_BF16 = 0,            /* rounds as PyTorch does with bf16 */
  MKBENCH_PRECISION_FP32_ACCUMULATE = 1, /* rounds KV rows, RoPE table, one operand a product */
  MKBENCH_PRECISION_LOSSY = 2,           /* quantised; is never ranked beside the others */
  MKBENCH_PRECISION_FP16 = 3             /* rounds where PyTorch does, K and V too, but to fp16 */
};

/* How a tensor is stored. The tensors of a model that mkbench_model describes are all bf16; those of
 * other models come as their files store them, with 0 for a type that has no name here (I64, BOOL, ...):
 * name, shape and bytes are then all that is told. An engine refuses what it cannot read. */
enum {
  MKBENCH_BF16 = 1,
  MKBENCH_FP16 = 2,
  MKBENCH_FP32 = 3,
  MKBENCH_FP8_E4M3 = 4,
  MKBENCH_INT8 = 5,
  MKBENCH_INT4 = 6,
  MKBENCH_UINT8 = 7 /* bytes, such as the blocks and scales of MXFP4 */
};

/* How the frequencies of RoPE, 1 / theta^(2 i / head_dim), are scaled: not at all, all divided by
 * the factor, or by wave length as transformers' rope_type "llama3" does (naive_cpu.cpp shows how). */
enum { MKBENCH_ROPE_UNSCALED = 0, MKBENCH_ROPE_LINEAR = 1, MKBENCH_ROPE_LLAMA3 = 2 };

/* The activation of the gate: SiLU, or GELU by tanh (PyTorch's gelu with approximate="tanh"). */
enum { MKBENCH_SILU = 0, MKBENCH_GELU_TANH = 1 };

/* Fills `mine`, a struct of `size` bytes that begins with its size, from `theirs`, the same struct
 * as the other side was compiled with: what the other side does not have is 0, and so is all of it
 * if `theirs` is NULL. */
static inline void mkbench_read(void* mine, uint32_t size, const void* theirs) {
  uint32_t common = size;
  memset(mine, 0, size);
  if (theirs != NULL) { /* NOLINT(modernize-use-nullptr): C has no nullptr */
    memcpy(&common, theirs, sizeof common);
    memcpy(mine, theirs, common < size ? common : size);
  }
  memcpy(mine, &size, sizeof size);
}

/* A dense decoder: the layers of Llama, and what differs between families. An engine compares all
 * of it with what it has code for, and refuses other models with MKBENCH_UNFIT_MODEL. */
typedef struct mkbench_model {
  uint32_t size;
  int32_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  int32_t tied;     /* 1: lm_head.weight is the embedding's own memory */
  int32_t qk_norm;  /* 1: RMSNorm over each query and key head, before RoPE (Qwen3) */
  int32_t qkv_bias; /* 1: a vector is added to each of q, k and v (Qwen2) */
  double rms_norm_eps;
  double rope_theta;
  double rope_factor;                                 /* 1 where unscaled */
  double rope_low_freq_factor, rope_high_freq_factor; /* of llama3 alone, else 0 */
  int32_t rope_scaling;                               /* MKBENCH_ROPE_... */
  int32_t rope_original_positions;                    /* of llama3 alone, else 0 */
  int32_t norm_offset; /* 0, or 1: added to norm weights in fp32; a norm then rounds once (Gemma) */
  int32_t activation;  /* MKBENCH_SILU, ... */
  double embedding_multiplier; /* for embedding rows of ids, not for input vectors; 0: none */
} mkbench_model;

/* Why open() refuses a model whose mkbench_open.model is NULL, for an engine that needs the record. */
#define MKBENCH_NO_RECORD "model: wanted a family that mkbench_model describes, found another"

/* What the model computes that a Qwen3 does not, for open()'s refusal by an engine that has code for
 * Qwen3 alone; NULL if there is nothing. `m` is what mkbench_read() made, also from NULL. */
static inline const char* mkbench_unlike_qwen3(const mkbench_model* m) {
  if (m->layers == 0) return MKBENCH_NO_RECORD;
  if (m->qk_norm == 0) return "model: wanted a Qwen3, found no QK-norm";
  if (m->qkv_bias != 0) return "model: wanted a Qwen3, found biases of q, k and v";
  if (m->rope_scaling != MKBENCH_ROPE_UNSCALED) return "model: wanted a Qwen3, found scaled RoPE";
  if (m->norm_offset != 0) return "model: wanted a Qwen3, found norms with an offset";
  if (m->activation != MKBENCH_SILU) return "model: wanted a Qwen3, found another activation";
  if (m->embedding_multiplier != 0) return "model: wanted a Qwen3, found scaled embeddings";
  return NULL; /* NOLINT(modernize-use-nullptr): C has no nullptr */
}

/* How values are stored. A scale belongs to a block of scale_out x scale_in values of [out, in];
 * 0 x 0: there are no scales. The value is scale * (stored - zero), zero 0 if there are none. */
typedef struct mkbench_storage {
  uint32_t size;
  int32_t dtype;               /* MKBENCH_BF16, ... */
  int32_t scale_out, scale_in; /* 1 x the row's length: a scale a row; 128 x 128: a scale a block */
  int32_t scale_dtype;         /* 0: there are no scales */
  int32_t zero_dtype;          /* 0: there are no zero points; else one beside each scale */
  uint64_t bytes;              /* that a step reads: values, scales and zero points */
} mkbench_storage;

/* A weight: row-major, Hugging Face's name and shape. */
typedef struct mkbench_tensor {
  uint32_t size;
  int32_t dtype;    /* MKBENCH_BF16, ...; 0: another type */
  const char* name; /* "model.layers.0.self_attn.q_proj.weight", "...q_proj.bias" */
  const void* data; /* aligned to 256 bytes; in host memory, or on the device of open() */
  uint64_t bytes;
  int32_t rank; /* 0 to 4 */
  /* [out, in]; those from `rank` on are 1. shape[3] is the product of all further dimensions. */
  int64_t shape[4];
  /* NULL where data holds the values themselves, as it does in every model today. */
  const mkbench_storage* storage;
  const void *scales, *zeros; /* row-major, one for each block; zeros packed as the values are */
} mkbench_tensor;

/* The arguments of open(). All that they point to stays valid until close(). The tensors belong to
 * mkbench and are read only: a change to one ends in the verdict INTEGRITY. */
typedef struct mkbench_open {
  uint32_t size;
  uint32_t tensor_count;
  /* All of the model, lm_head.weight even if it is tied. Where `model` is NULL: all of the folder's
   * files, by the names and with the dtypes that they have there. */
  const mkbench_tensor* const* tensors;
  /* What config.json says; NULL for a model that is in no family that it describes: config_json and
   * the tensors are all there is. */
  const mkbench_model* model;
  const char* config_json; /* its text; mkbench writes one for a model that is in no folder */
  const char* folder;      /* that holds config.json and the weights; NULL: none */
  int32_t device;      /* MKBENCH_DEVICE_CPU or MKBENCH_DEVICE_CUDA: one that the engine offers */
  int32_t gpu;         /* CUDA ordinal, current on this thread; -1 on a CPU */
  int32_t max_context; /* positions that the KV cache must hold */
  int32_t batch;       /* sequences that are decoded at a time: always 1 */
} mkbench_open;

/* The arguments of decode(): n greedy steps. A step embeds its input id at the current position,
 * writes one KV row, and emits the id of the largest logit, the lowest id among equals. The input
 * of step 0 is the pending id, the input of a later step is the id emitted before it; the last id
 * emitted is pending afterwards. Ids that go in are in host memory; vectors and all outputs are in
 * memory of the device of open(). */
typedef struct mkbench_decode {
  uint32_t size;
  int32_t n; /* at least 1 */
  /* -1, or the input of step 0 in place of the pending id. A timed block draws it at the last
   * moment. Always -1 beside `forced` and `vectors`. */
  int32_t late_id;
  /* NULL, or n ids that are the inputs instead, the first one in place of the pending id. The
   * emitted ids are still the model's own choice. */
  const int32_t* forced;
  /* NULL, or bf16 [n, hidden], all finite: the inputs in place of embedding rows, for a trunk that is
   * one part of a model, such as the talker of Qwen3-TTS. A pending id is dropped then, and writes
   * no KV row. */
  const uint16_t* vectors;
  /* n emitted ids. They hold -1 beforehand: an id that is still -1 afterwards was not generated. */
  int32_t* ids;
  /* NULL, or fp32 [n, vocab], NaN beforehand. NULL where the time is reported. */
  float* logits;
  /* NULL, or fp32 [n, hidden], NaN beforehand: after the final norm, as the LM head reads it. */
  float* hidden;
} mkbench_decode;

/* The arguments of show(), by which a report can say where an error begins. */
enum {
  MKBENCH_SHOW_HIDDEN = 0, /* the hidden state after `layer` of the last step: [hidden] */
  /* K after RoPE, then V, of `position`: [2, kv_heads * head_dim]. Not asked for where
   * mkbench_open.model is NULL. */
  MKBENCH_SHOW_KV_ROW = 1
};
typedef struct mkbench_show {
  uint32_t size;
  int32_t what;
  int32_t layer, position;
  float* out; /* host memory */
} mkbench_show;

/* The arguments of frames(): n frames of a speech model, whose text came through decode() by vectors.
 * A frame: the talker's last hidden vector gives code 0, the code predictor the other ones; the sum
 * of their embeddings and a row of `text` is the input of the talker's next step. All choices are
 * greedy, as in decode(). Everything is in memory of the device of open(). */
typedef struct mkbench_frames {
  uint32_t size;
  int32_t n, codebooks;
  const uint16_t* text; /* bf16 [n, hidden] */
  int32_t* codes;       /* [n, codebooks], -1 beforehand */
  float* logits;        /* NULL, or fp32 [n, codebooks, largest head], NaN beforehand */
} mkbench_frames;

/* Slots of save(): 0 to 3. */
enum { MKBENCH_SLOTS = 4 };

/* What one thread block (on a CPU: one thread) did from t0 to t1. */
typedef struct mkbench_span {
  int32_t block, phase;  /* from 0; phase_name() names the phase */
  uint64_t t0_ns, t1_ns; /* begin and end by one clock of the engine: %globaltimer on a GPU */
} mkbench_span;

typedef struct mkbench_engine mkbench_engine; /* defined by the library */

/* What mkbench_engine_table() returns: static storage, never changed. */
typedef struct mkbench_engine_abi {
  uint32_t size;       /* sizeof(mkbench_engine_abi) */
  uint32_t version;    /* MKBENCH_ENGINE_ABI_VERSION */
  const char* name;    /* up to 40 of letters, digits, '.', '_', '-': as reports show it */
  uint32_t devices;    /* MKBENCH_DEVICE_CPU, MKBENCH_DEVICE_CUDA or both */
  uint32_t can;        /* MKBENCH_CAN_... */
  int32_t precision;   /* MKBENCH_PRECISION_... */
  int32_t max_context; /* the most positions that open() takes; 0: any number */

  /* Makes an engine with an empty sequence. Several may be open at a time. */
  int32_t (*open)(const mkbench_open* args, mkbench_engine** engine);
  void (*close)(mkbench_engine* engine);

  /* Empties the sequence: position 0, nothing pending. */
  int32_t (*reset)(mkbench_engine* engine);

  /* Called once after open() or reset(), n >= 1. `ids` is host memory. Writes the KV rows of
   * ids[0] .. ids[n - 2]; ids[n - 1] becomes pending: the input of the next step. */
  int32_t (*prefill)(mkbench_engine* engine, const int32_t* ids, int32_t n);

  /* The clock runs until this call has returned and all work of the device is done. */
  int32_t (*decode)(mkbench_engine* engine, const mkbench_decode* args);

  /* Everything below may be NULL: not offered. */

  /* Why the last call failed, or, with engine NULL, why open() failed. May return NULL. */
  const char* (*last_error)(mkbench_engine* engine);

  /* Host memory that holds the position of the running step. mkbench reads it from another thread
   * while decode() runs, so that a report can say where a kernel hung. May return NULL. */
  const volatile int32_t* (*progress)(mkbench_engine* engine);

  /* Goes back to `position`, 0 to the number of KV rows written: the rows below it stay, the others
   * count as never written. Nothing is pending then: decode() with a late id, forced ids or vectors,
   * or reset() comes next. Called only where the engine takes late or forced ids. Without it every
   * timed block prefills its prompt again. */
  int32_t (*rewind)(mkbench_engine* engine, int32_t position);

  /* save() keeps the state in a slot, in place of what the slot held, and sets *checksum, which is
   * over the KV rows and differs if a row differs. restore() goes back to that state, its pending id
   * included. mkbench restores only while the same ids stand below the saved position, perhaps after
   * a reset() and another prefill(), so an engine may leave rows where they are and keep the
   * rest; it compares their checksum then, and returns MKBENCH_CHANGED if it has changed. An engine
   * offers both functions or neither. */
  int32_t (*save)(mkbench_engine* engine, int32_t slot, uint64_t* checksum);
  int32_t (*restore)(mkbench_engine* engine, int32_t slot);

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

  /* Fills args->out between decodes, off the clock. */
  int32_t (*show)(mkbench_engine* engine, const mkbench_show* args);

  /* How the engine keeps the weight `name` while it decodes; NULL: it does not say. Asked for each weight
   * of which dequantised() gives values: a step then reads `bytes` of it, and the share of the ceiling
   * is of these. What is returned is read at once. */
  const mkbench_storage* (*storage)(mkbench_engine* engine, const char* name);

  /* With --truth dequantised: the values of the weight `name` that enter the product, fp32, in the
   * tensor's shape, host memory. The truth computes with them. Returns MKBENCH_NOT_SHOWN for a weight
   * that is used as it was handed out; lm_head.weight of a tied model then follows the embedding. Of a
   * quantised model, `name` is that of the whole weight: "...q_proj.weight" where the folder stores
   * "...q_proj.qweight". */
  int32_t (*dequantised)(mkbench_engine* engine, const char* name, float* values);

  /* From here on: declared for engines that are written now, not called by this mkbench. */
  int32_t (*frames)(mkbench_engine* engine, const mkbench_frames* args);
  /* What activations and KV rows are rounded to beside the precision: MKBENCH_FP8_E4M3, MKBENCH_INT8;
   * 0: to nothing else. */
  int32_t activations, kv;
} mkbench_engine_abi;

/* The one exported function. */
#define MKBENCH_ENGINE_ABI_SYMBOL "mkbench_engine_table"
MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table(void);

#ifdef __cplusplus
}

/* mkbench_read() in C++: const mkbench_decode mine = mkbench_own(args); */
template <typename Struct>
Struct mkbench_own(const Struct* theirs) {
  Struct mine;
  mkbench_read(&mine, sizeof mine, theirs);
  return mine;
}
#endif

#endif
