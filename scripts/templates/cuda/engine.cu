// A CUDA decoder of your own behind mkbench's C interface (engine_abi.h).
//
// The frame is complete: it checks the model, finds the weights on the device, keeps position, KV
// cache and pending id. What is missing is your kernel, in the two functions between "Your kernel
// begins" and "ends". Until then each of them fails with its own name and line, and mkbench's
// verdict is RUNTIME_ERROR.
//
// mkbench calls one engine from one thread, on which the card of open() is current; several engines
// may be open at a time, so state belongs in struct mkbench_engine. No C++ exception may leave a
// function of the table, and nothing may run on the card once a call is over: decode() may return
// before the device is done, and mkbench waits for it. What you print goes to mkbench's stderr.
// The frame copies on the default stream: order kernels on a stream of your own behind it.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "engine_abi.h"

namespace {

using Bf16 = __nv_bfloat16;

// Weights are bf16 in device memory, row-major [out, in], as Hugging Face stores them. They belong
// to mkbench, stay valid until close(), and may only be read: a change ends in INTEGRITY.
struct Layer {
  const Bf16* input_norm;  // [hidden]
  const Bf16* q;           // [heads * head_dim, hidden]
  const Bf16* k;           // [kv_heads * head_dim, hidden]
  const Bf16* v;           // [kv_heads * head_dim, hidden]
  const Bf16* o;           // [hidden, heads * head_dim]
  const Bf16* q_norm;      // [head_dim], before RoPE, for each head
  const Bf16* k_norm;      // [head_dim]
  const Bf16* post_norm;   // [hidden]
  const Bf16* gate;        // [intermediate, hidden]
  const Bf16* up;          // [intermediate, hidden]
  const Bf16* down;        // [hidden, intermediate]
};

}  // namespace

struct mkbench_engine {
  mkbench_model m = {};              // sizes, rope_theta, rms_norm_eps
  const Bf16* embedding = nullptr;   // [vocab, hidden]
  const Bf16* final_norm = nullptr;  // [hidden]
  const Bf16* head = nullptr;        // [vocab, hidden]; the embedding itself where m.tied
  std::vector<Layer> layers;         // [m.layers], in host memory: copy it for a kernel that loops
  Bf16* keys = nullptr;              // device [layers, max_context, kv_heads * head_dim]
  Bf16* values = nullptr;            // device [layers, max_context, kv_heads * head_dim]
  int32_t* inputs = nullptr;         // device [max_context]: ids that the frame has copied
  int32_t* pending = nullptr;        // device [1]: the input of the next step
  int32_t* running = nullptr;        // pinned [1], which kernels can write: see progress()
  int32_t max_context = 0;           // rows that the KV cache must hold
  int32_t position = 0;              // KV rows written: the frame counts them
  std::string error;
};

namespace {

int32_t fail(mkbench_engine* e, const std::string& what) {
  e->error = what;
  return MKBENCH_FAILED;
}

// Returns from the function where a CUDA call has failed, with the call and its reason.
#define CHECK(e, call)                                                        \
  do {                                                                        \
    const cudaError_t status = (call);                                        \
    if (status != cudaSuccess)                                                \
      return fail(e, std::string(#call) + ": " + cudaGetErrorString(status)); \
  } while (0)

// ---- Your kernel begins -------------------------------------------------------------------------

// Delete this function with its last use.
int32_t not_written(mkbench_engine* e, const char* what, int line) {
  return fail(e,
              std::string(what) + " is not written yet: " + __FILE__ + ":" + std::to_string(line));
}

// 1 of 2. Writes the KV rows of ids[0] .. ids[n - 1], n >= 1, device memory, at position ..
// position + n - 1 of keys and values. There is room for them, and every id is in [0, vocab). No
// output: the frame sets the id after them as pending. One id at a time is correct, but slow.
int32_t prefill_rows(mkbench_engine* e, const int32_t* ids, int32_t n) {
  (void)ids;
  (void)n;
  return not_written(e, "prefill", __LINE__);
}

// 2 of 2. n greedy steps, n >= 1, from `position` on; a megakernel is one launch here. A step
// embeds its input id, writes one KV row, and emits the id of the largest logit, the lowest id among
// equals.
//   inputs: step 0 takes *e->pending, a later step the id emitted before it. With `forced` (device,
//     n ids) step t takes forced[t], and still emits the model's own choice.
//   ids: device [n], to be filled. It holds -1: an id that is still -1 counts as not generated.
//   logits: null when the clock runs. Else fp32, device [n, vocab], to be filled; NaN beforehand.
// The last id must be left in *e->pending as well. ids and logits have no room beyond that: a write
// past their end gives INTEGRITY. The clock runs from this call until the device is done.
int32_t decode_steps(mkbench_engine* e, int32_t n, const int32_t* forced, int32_t* ids,
                     float* logits) {
  (void)n;
  (void)forced;
  (void)ids;
  (void)logits;
  return not_written(e, "decode", __LINE__);
}

// ---- Your kernel ends ---------------------------------------------------------------------------

std::string open_error;  // last_error(NULL)

int32_t refuse(int32_t why, const std::string& what) {
  open_error = what;
  return why;
}

std::string shape_text(int64_t rows, int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

// Finds a weight by name and checks its shape; a vector is [rows, 1].
int32_t find(const mkbench_open* args, const std::string& name, int64_t rows, int64_t cols,
             const Bf16*& at) {
  for (uint32_t i = 0; i < args->tensor_count; ++i) {
    const mkbench_tensor t = mkbench_own(args->tensors[i]);
    if (name != t.name) continue;
    if (t.dtype != MKBENCH_BF16 || t.shape[0] != rows || t.shape[1] != cols)
      return refuse(MKBENCH_UNFIT_MODEL, name + ": found " + shape_text(t.shape[0], t.shape[1]) +
                                             " of type " + std::to_string(t.dtype) + ", wanted " +
                                             shape_text(rows, cols));
    at = static_cast<const Bf16*>(t.data);
    return MKBENCH_OK;
  }
  return refuse(MKBENCH_UNFIT_MODEL, name + ": there is no such tensor");
}

int32_t find_weights(const mkbench_open* args, mkbench_engine* e) {
  const mkbench_model& m = e->m;
  const int64_t q_rows = int64_t(m.heads) * m.head_dim, kv_rows = int64_t(m.kv_heads) * m.head_dim;
  int32_t status = find(args, "model.embed_tokens.weight", m.vocab, m.hidden, e->embedding);
  const auto next = [&](const std::string& name, int64_t rows, int64_t cols, const Bf16*& at) {
    if (status == MKBENCH_OK) status = find(args, name + ".weight", rows, cols, at);
  };
  next("model.norm", m.hidden, 1, e->final_norm);
  next("lm_head", m.vocab, m.hidden, e->head);
  e->layers.resize(size_t(m.layers));
  for (int32_t i = 0; i < m.layers; ++i) {
    const std::string at = "model.layers." + std::to_string(i) + ".";
    Layer& l = e->layers[size_t(i)];
    next(at + "input_layernorm", m.hidden, 1, l.input_norm);
    next(at + "self_attn.q_proj", q_rows, m.hidden, l.q);
    next(at + "self_attn.k_proj", kv_rows, m.hidden, l.k);
    next(at + "self_attn.v_proj", kv_rows, m.hidden, l.v);
    next(at + "self_attn.o_proj", m.hidden, q_rows, l.o);
    next(at + "self_attn.q_norm", m.head_dim, 1, l.q_norm);
    next(at + "self_attn.k_norm", m.head_dim, 1, l.k_norm);
    next(at + "post_attention_layernorm", m.hidden, 1, l.post_norm);
    next(at + "mlp.gate_proj", m.intermediate, m.hidden, l.gate);
    next(at + "mlp.up_proj", m.intermediate, m.hidden, l.up);
    next(at + "mlp.down_proj", m.hidden, m.intermediate, l.down);
  }
  return status;
}

// What the frame needs on the card; add your scratch here, and free it in close_engine().
int32_t allocate(mkbench_engine* e) {
  const size_t row = size_t(e->m.kv_heads) * size_t(e->m.head_dim),
               context = size_t(e->max_context);
  const size_t cache = size_t(e->m.layers) * context * row * sizeof(Bf16);
  CHECK(e, cudaMalloc(&e->keys, cache));
  CHECK(e, cudaMalloc(&e->values, cache));
  CHECK(e, cudaMalloc(&e->inputs, context * sizeof(int32_t)));
  CHECK(e, cudaMalloc(&e->pending, sizeof(int32_t)));
  CHECK(e, cudaHostAlloc(&e->running, sizeof(int32_t), cudaHostAllocMapped));
  *e->running = 0;
  return MKBENCH_OK;
}

void close_engine(mkbench_engine* e) {
  if (e == nullptr) return;
  cudaFree(e->keys);
  cudaFree(e->values);
  cudaFree(e->inputs);
  cudaFree(e->pending);
  cudaFreeHost(e->running);
  delete e;
}

// Makes an engine with an empty sequence. Refuse here, in one line, what your kernel has no code
// for: MKBENCH_UNFIT_MODEL (a shape) ends as BAD_INPUT, MKBENCH_UNFIT_ENV (memory, architecture) as
// ENV_UNFIT. A kernel that is compiled for one model compares all of args->model with it.
int32_t open_engine(const mkbench_open* given, mkbench_engine** engine) {
  const mkbench_open args = mkbench_own(given);
  const mkbench_model m = mkbench_own(args.model);
  if (m.qk_norm == 0 || m.qkv_bias != 0 || m.rope_scaling != MKBENCH_ROPE_UNSCALED)
    return refuse(MKBENCH_UNFIT_MODEL,
                  "model: wanted QK-norm, no biases of q, k and v, unscaled RoPE: a Qwen3");
  if (m.norm_offset != 0 || m.activation != MKBENCH_SILU || m.embedding_multiplier != 0)
    return refuse(MKBENCH_UNFIT_MODEL,
                  "model: wanted norms without offset, SiLU, no embedding multiplier: a Qwen3");
  if (m.head_dim % 2 != 0 || m.heads % m.kv_heads != 0)
    return refuse(MKBENCH_UNFIT_MODEL, "heads: wanted an even head_dim and heads % kv_heads = 0");
  if (args.batch != 1) return refuse(MKBENCH_UNFIT_MODEL, "batch: wanted 1");
  auto* e = new mkbench_engine;
  e->m = m;
  e->max_context = args.max_context;
  int32_t status = find_weights(&args, e);
  if (status == MKBENCH_OK && allocate(e) != MKBENCH_OK)
    status = refuse(MKBENCH_UNFIT_ENV, e->error);
  if (status != MKBENCH_OK) {
    close_engine(e);
    return status;
  }
  *engine = e;
  return MKBENCH_OK;
}

// Empties the sequence.
int32_t reset(mkbench_engine* e) {
  e->position = 0;
  return MKBENCH_OK;
}

// Called once after open() or reset(), ids in host memory: KV rows for all ids but the last, which
// becomes pending.
int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  if (n - 1 > e->max_context) return fail(e, "prefill: the KV cache is full");
  if (n > 1) {
    CHECK(e, cudaMemcpy(e->inputs, ids, sizeof(int32_t) * size_t(n - 1), cudaMemcpyHostToDevice));
    const int32_t status = prefill_rows(e, e->inputs, n - 1);
    if (status != MKBENCH_OK) return status;
  }
  CHECK(e, cudaMemcpy(e->pending, ids + n - 1, sizeof(int32_t), cudaMemcpyHostToDevice));
  CHECK(e, cudaGetLastError());
  e->position = n - 1;
  return MKBENCH_OK;
}

int32_t decode(mkbench_engine* e, const mkbench_decode* given) {
  const mkbench_decode d = mkbench_own(given);
  const size_t bytes = sizeof(int32_t) * size_t(d.n);
  if (d.n > e->max_context - e->position) return fail(e, "decode: the KV cache is full");
  // An id that mkbench draws at the last moment, while the clock runs.
  if (d.late_id >= 0)
    CHECK(e, cudaMemcpy(e->pending, &d.late_id, sizeof d.late_id, cudaMemcpyHostToDevice));
  if (d.forced != nullptr) CHECK(e, cudaMemcpy(e->inputs, d.forced, bytes, cudaMemcpyHostToDevice));
  const int32_t* forced = d.forced != nullptr ? e->inputs : nullptr;
  const int32_t status = decode_steps(e, d.n, forced, d.ids, d.logits);
  if (status != MKBENCH_OK) return status;
  CHECK(e, cudaGetLastError());
  e->position += d.n;
  return MKBENCH_OK;
}

// Rows below `position` stay, the others count as never written; nothing is pending until the next
// late or forced id. Without this function every timed block prefills its prompt again.
int32_t go_back(mkbench_engine* e, int32_t position) {
  e->position = position;
  return MKBENCH_OK;
}

// Why the last call failed; with null, why open() did.
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }

// Host memory that another thread reads while decode() runs: a kernel that writes the position of
// its step there lets mkbench say where it hung, and tell slow from hung.
const volatile int32_t* progress(mkbench_engine* e) { return e->running; }

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};  // what stays 0 or null is not offered: engine_abi.h has the rest
    t.size = sizeof t;
    t.version = MKBENCH_ENGINE_ABI_VERSION;
    t.name = "@NAME@";  // as reports show it
    t.devices = MKBENCH_DEVICE_CUDA;
    // Add MKBENCH_ONE_LAUNCH where a whole decode() is one launch (the driver's records are
    // compared), MKBENCH_NOT_DETERMINISTIC where equal input may give other bits. Leave out what
    // you do not offer: without logits, tokens alone are judged.
    t.can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID;
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.progress = progress;
    // How logits are judged: FP32_ACCUMULATE rounds only KV rows, RoPE table and one operand of a
    // product; BF16 rounds as PyTorch does; LOSSY is quantised and ranked with no other.
    t.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
    t.rewind = go_back;
    return t;
  }();
  return &table;
}
