// A Qwen3 decoder of plain CUDA kernels behind mkbench's engine ABI: some 400 launches a token,
// one operation a kernel, fp32 between bf16 weights and a bf16 KV cache. Read it beside
// references/engine_abi.h; it needs nothing else:
//
//     nvcc -O3 -shared -Xcompiler -fPIC -arch=native -I<mkbench's folder> naive_cuda.cu -o mine.so
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "references/engine_abi.h"

namespace {

// mkbench's tests break this file with -DNAIVE_FAULT=kTheta and so on.
enum Fault {
  kNone,
  kTheta,   // RoPE's base is the library's default, 1e4
  kVocab,   // argmax over 384 threads by halving: 3 -> 1 loses every third thread
  kOverrun  // one id too many is written
};
#ifndef NAIVE_FAULT
#define NAIVE_FAULT kNone
#endif
#ifndef NAIVE_CAN
#define NAIVE_CAN (MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID)
#endif
constexpr Fault kFault = NAIVE_FAULT;

using Bf16 = __nv_bfloat16;
constexpr int kThreads = 256;
constexpr int kArgmaxThreads = kFault == kVocab ? 384 : 1024;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
#define CHECK(call) check((call), #call)

// Returns to every thread the sum of `mine` over a block of kThreads.
__device__ float block_sum(float mine) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = mine;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  const float sum = part[0];
  __syncthreads();
  return sum;
}

// The span of a timeline that a launch fills in; null where none is recorded.
struct Recorded {
  mkbench_span* span = nullptr;
  int32_t phase = 0;
};

// Each kernel has one: the span of its launch begins with the first block, and ends where thread 0 of the last
// block ends. mkbench has filled it with bytes 0xff, the largest begin, and as a signed number the least end.
struct Watch {
  mkbench_span* const span;  // null in threads that write nothing
  __device__ explicit Watch(const Recorded& launch)
      : span(threadIdx.x == 0 ? launch.span : nullptr) {
    if (span == nullptr) return;
    if (blockIdx.x == 0) span->block = 0, span->phase = launch.phase;
    atomicMin(reinterpret_cast<unsigned long long*>(&span->t0_ns), now());
  }
  __device__ ~Watch() {
    if (span != nullptr) atomicMax(reinterpret_cast<long long*>(&span->t1_ns), (long long)now());
  }
  static __device__ unsigned long long now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  }
};

// h = embedding[*id], (n)
__global__ void embed(const Bf16* embedding, const int32_t* id, float* h, int n,
                      Recorded launch = {}) {
  const Watch watch(launch);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) h[i] = __bfloat162float(embedding[size_t(*id) * n + i]);
}

// out = weight * x / sqrt(mean(x^2) + eps). x, out: (rows, n). Each block computes one row.
__global__ void rms_norm(const float* x, const Bf16* weight, float* out, int n, float eps,
                         Recorded launch = {}) {
  const Watch watch(launch);
  const float* row = x + size_t(blockIdx.x) * n;
  float squares = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) squares += row[i] * row[i];
  const float scale = 1.0f / sqrtf(block_sum(squares) / n + eps);
  for (int i = threadIdx.x; i < n; i += kThreads) {
    out[size_t(blockIdx.x) * n + i] = row[i] * scale * __bfloat162float(weight[i]);
  }
}

// y = w . x, or y += w . x. w: (rows, cols). Each warp computes one row.
template <bool kAdd>
__global__ void multiply(const Bf16* w, const float* x, float* y, int rows, int cols,
                         Recorded launch = {}) {
  const Watch watch(launch);
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0;
  for (int i = lane; i < cols; i += 32) sum += __bfloat162float(w[size_t(row) * cols + i]) * x[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) y[row] = kAdd ? y[row] + sum : sum;
}

// RoPE in place. turns: (cos, sin) of this position. Each block rotates one head, each thread one
// pair (i, i + half).
__global__ void rotate(float* x, const float2* turns, Recorded launch = {}) {
  const Watch watch(launch);
  const int half = blockDim.x, i = threadIdx.x;
  float* head = x + size_t(blockIdx.x) * 2 * half;
  const float low = head[i], high = head[i + half];
  head[i] = low * turns[i].x - high * turns[i].y;
  head[i + half] = high * turns[i].x + low * turns[i].y;
}

__global__ void store_row(const float* x, Bf16* row, int n, Recorded launch = {}) {
  const Watch watch(launch);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) row[i] = __float2bfloat16(x[i]);
}

// Attention over all rows so far. keys, values: (rows, kv_heads, dim); scores: scratch
// (heads, stride). Each block computes one query head.
__global__ void attention(const float* q, const Bf16* keys, const Bf16* values, float* scores,
                          float* out, int rows, int stride, int dim, int group, int kv_heads,
                          Recorded launch = {}) {
  const Watch watch(launch);
  const int head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t at = size_t(head / group) * dim, width = size_t(kv_heads) * dim;
  float* p = scores + size_t(head) * stride;
  for (int t = warp; t < rows; t += kThreads / 32) {
    float sum = 0;
    for (int i = lane; i < dim; i += 32)
      sum += q[head * dim + i] * __bfloat162float(keys[t * width + at + i]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) p[t] = sum / sqrtf(dim);
  }
  __syncthreads();
  float largest = -INFINITY;  // every thread reads all scores: slow but right
  for (int t = 0; t < rows; ++t) largest = fmaxf(largest, p[t]);
  __syncthreads();
  float mine = 0;
  for (int t = threadIdx.x; t < rows; t += kThreads) mine += p[t] = expf(p[t] - largest);
  const float sum = block_sum(mine);
  for (int i = threadIdx.x; i < dim; i += kThreads) {
    float mixed = 0;
    for (int t = 0; t < rows; ++t) mixed += p[t] * __bfloat162float(values[t * width + at + i]);
    out[head * dim + i] = mixed / sum;
  }
}

// gate = silu(gate) * up
__global__ void swiglu(float* gate, const float* up, int n, Recorded launch = {}) {
  const Watch watch(launch);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) gate[i] *= up[i] / (1 + expf(-gate[i]));
}

// Writes the id of the largest logit (the lowest among equals) to *id and *next. One block.
__global__ void argmax(const float* logits, int n, int32_t* id, int32_t* next,
                       Recorded launch = {}) {
  const Watch watch(launch);
  __shared__ float value[kArgmaxThreads];
  __shared__ int32_t place[kArgmaxThreads];
  float best = -INFINITY;
  int32_t at = n;
  for (int i = threadIdx.x; i < n; i += kArgmaxThreads) {
    if (logits[i] > best) best = logits[i], at = i;
  }
  value[threadIdx.x] = best, place[threadIdx.x] = at;
  __syncthreads();
  for (int half = kArgmaxThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const float other = value[threadIdx.x + half];
      const int32_t there = place[threadIdx.x + half];
      if (other > value[threadIdx.x] ||
          (other == value[threadIdx.x] && there < place[threadIdx.x])) {
        value[threadIdx.x] = other, place[threadIdx.x] = there;
      }
    }
    __syncthreads();
  }
  // place[0] is n where no logit is a number: *id stays -1, and the sequence goes on with id 0.
  if (threadIdx.x == 0 && place[0] < n) *id = place[0];
  if (threadIdx.x == 0) *next = place[0] < n ? place[0] : 0;
}

// Device memory that is freed with its owner.
template <typename T>
struct Buffer {
  T* data = nullptr;
  explicit Buffer(size_t count) {
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data), std::max<size_t>(count, 1) * sizeof(T)));
  }
  ~Buffer() { cudaFree(data); }
  Buffer(Buffer&& other) noexcept : data(other.data) { other.data = nullptr; }
  Buffer(const Buffer&) = delete;
};

struct Layer {
  const Bf16 *input_norm, *q, *k, *v, *o, *q_norm, *k_norm, *post_norm, *gate, *up, *down;
};

const Bf16* find(const mkbench_open& args, const std::string& name) {
  for (uint32_t i = 0; i < args.tensor_count; ++i) {
    const mkbench_tensor t = mkbench_own(args.tensors[i]);
    if (name == t.name && t.dtype == MKBENCH_BF16) return static_cast<const Bf16*>(t.data);
  }
  throw std::runtime_error("there is no tensor " + name + " in bf16");
}

int blocks_for(int n) { return (n + kThreads - 1) / kThreads; }
std::vector<std::string> phases;  // names of what launches do, in the order of their first use

// The spans of a decode, one for each launch. They run one after the other, as if one block did it all.
class Spans {
 public:
  Spans(mkbench_span* spans, int32_t room) : spans_(spans), room_(spans != nullptr ? room : 0) {}
  void begin() { used_ = 0; }
  void end() { used_ = room_; }  // a prefill's launches are not recorded
  Recorded next(const char* phase) {
    if (used_ == room_) return {};
    const auto at = std::find(phases.begin(), phases.end(), phase);
    const auto number = int32_t(at - phases.begin());
    if (at == phases.end()) phases.emplace_back(phase);
    return {spans_ + used_++, number};
  }

 private:
  mkbench_span* spans_;
  int32_t room_, used_ = room_;
};

}  // namespace

struct mkbench_engine {
  mkbench_model m;
  const int max_context;
  const int q_width = m.heads * m.head_dim, kv_width = m.kv_heads * m.head_dim;
  const Bf16 *embedding, *final_norm, *head;
  std::vector<Layer> layers;
  Buffer<Bf16> keys, values;  // (layers, max_context, kv_width)
  Buffer<float2> turns;       // (max_context, head_dim / 2)
  Buffer<float> h, x, q, k, v, mixed, gate, up, logits, scores;
  Buffer<int32_t> pending, inputs;
  Spans spans{nullptr, 0};
  int position = 0;
  std::string error;

  explicit mkbench_engine(const mkbench_open& args)
      : m(mkbench_own(args.model)),
        max_context(args.max_context),
        embedding(find(args, "model.embed_tokens.weight")),
        final_norm(find(args, "model.norm.weight")),
        head(find(args, "lm_head.weight")),
        keys(size_t(m.layers) * max_context * kv_width),
        values(size_t(m.layers) * max_context * kv_width),
        turns(size_t(max_context) * m.head_dim / 2),
        h(m.hidden),
        x(m.hidden),
        q(q_width),
        k(kv_width),
        v(kv_width),
        mixed(q_width),
        gate(m.intermediate),
        up(m.intermediate),
        logits(m.vocab),
        scores(size_t(m.heads) * max_context),
        pending(1),
        inputs(max_context) {
    for (int i = 0; i < m.layers; ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      const auto get = [&](const char* name) { return find(args, at + name + ".weight"); };
      layers.push_back({get("input_layernorm"), get("self_attn.q_proj"), get("self_attn.k_proj"),
                        get("self_attn.v_proj"), get("self_attn.o_proj"), get("self_attn.q_norm"),
                        get("self_attn.k_norm"), get("post_attention_layernorm"),
                        get("mlp.gate_proj"), get("mlp.up_proj"), get("mlp.down_proj")});
    }
    // Frequencies and angles are in fp32, as in the model's training; sines and cosines are
    // computed once, in double.
    const auto theta = float(kFault == kTheta ? 1e4 : m.rope_theta);
    std::vector<float2> table;
    for (int p = 0; p < max_context; ++p) {
      for (int i = 0; i < m.head_dim; i += 2) {
        const float angle = 1 / std::pow(theta, float(i) / float(m.head_dim)) * float(p);
        table.push_back({float(std::cos(double(angle))), float(std::sin(double(angle)))});
      }
    }
    CHECK(cudaMemcpy(turns.data, table.data(), table.size() * sizeof(float2),
                     cudaMemcpyHostToDevice));
  }

  template <bool kAdd = false>
  void product(const char* phase, const Bf16* w, const float* in, float* out, int rows, int cols) {
    multiply<kAdd><<<blocks_for(32 * rows), kThreads>>>(w, in, out, rows, cols, spans.next(phase));
  }

  void norm(const char* phase, const float* in, const Bf16* weight, float* out, int rows, int n) {
    rms_norm<<<rows, kThreads>>>(in, weight, out, n, float(m.rms_norm_eps), spans.next(phase));
  }

  // Runs one position: writes its KV rows and leaves the final hidden state in h. `id`: device
  // memory.
  void step(const int32_t* id) {
    if (position >= max_context) throw std::runtime_error("the KV cache is full");
    embed<<<blocks_for(m.hidden), kThreads>>>(embedding, id, h.data, m.hidden, spans.next("embed"));
    const float2* now = turns.data + size_t(position) * m.head_dim / 2;
    const int rows = position + 1;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& w = layers[i];
      Bf16* all_keys = keys.data + i * max_context * kv_width;
      Bf16* all_values = values.data + i * max_context * kv_width;
      norm("input norm", h.data, w.input_norm, x.data, 1, m.hidden);
      product("q", w.q, x.data, q.data, q_width, m.hidden);
      product("k", w.k, x.data, k.data, kv_width, m.hidden);
      product("v", w.v, x.data, v.data, kv_width, m.hidden);
      norm("norm of q", q.data, w.q_norm, q.data, m.heads, m.head_dim);
      norm("norm of k", k.data, w.k_norm, k.data, m.kv_heads, m.head_dim);
      rotate<<<m.heads, m.head_dim / 2>>>(q.data, now, spans.next("rope of q"));
      rotate<<<m.kv_heads, m.head_dim / 2>>>(k.data, now, spans.next("rope of k"));
      const size_t row = size_t(position) * kv_width;
      store_row<<<blocks_for(kv_width), kThreads>>>(k.data, all_keys + row, kv_width,
                                                    spans.next("row of k"));
      store_row<<<blocks_for(kv_width), kThreads>>>(v.data, all_values + row, kv_width,
                                                    spans.next("row of v"));
      attention<<<m.heads, kThreads>>>(q.data, all_keys, all_values, scores.data, mixed.data, rows,
                                       max_context, m.head_dim, m.heads / m.kv_heads, m.kv_heads,
                                       spans.next("attention"));
      product<true>("o", w.o, mixed.data, h.data, m.hidden, q_width);
      norm("post norm", h.data, w.post_norm, x.data, 1, m.hidden);
      product("gate", w.gate, x.data, gate.data, m.intermediate, m.hidden);
      product("up", w.up, x.data, up.data, m.intermediate, m.hidden);
      swiglu<<<blocks_for(m.intermediate), kThreads>>>(gate.data, up.data, m.intermediate,
                                                       spans.next("swiglu"));
      product<true>("down", w.down, gate.data, h.data, m.hidden, m.intermediate);
    }
    ++position;
  }

  void prefill(const int32_t* ids, int32_t n) {
    if (n - 1 > max_context) throw std::runtime_error("the KV cache is full");
    if (n > 1) CHECK(cudaMemcpy(inputs.data, ids, 4 * size_t(n - 1), cudaMemcpyHostToDevice));
    for (int32_t i = 0; i + 1 < n; ++i) step(inputs.data + i);
    CHECK(cudaMemcpy(pending.data, ids + n - 1, 4, cudaMemcpyHostToDevice));
    CHECK(cudaGetLastError());
  }

  void decode(const mkbench_decode& d) {
    const int32_t n = d.n;
    if (n > max_context) throw std::runtime_error("the KV cache is full");
    if (d.late_id >= 0) CHECK(cudaMemcpy(pending.data, &d.late_id, 4, cudaMemcpyHostToDevice));
    if (d.forced != nullptr)
      CHECK(cudaMemcpy(inputs.data, d.forced, 4 * size_t(n), cudaMemcpyHostToDevice));
    spans.begin();
    for (int32_t t = 0; t < n; ++t) {
      step(d.forced != nullptr ? inputs.data + t : pending.data);
      norm("final norm", h.data, final_norm, x.data, 1, m.hidden);
      float* row = d.logits != nullptr ? d.logits + size_t(t) * m.vocab : logits.data;
      product("lm head", head, x.data, row, m.vocab, m.hidden);
      argmax<<<1, kArgmaxThreads>>>(row, m.vocab, d.ids + t, pending.data, spans.next("argmax"));
    }
    spans.end();
    if (kFault == kOverrun) CHECK(cudaMemset(d.ids + n, 0, 4));
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }
};

namespace {

std::string open_error;

// Runs `work`: no C++ exception may cross the C interface.
template <typename Work>
int32_t guarded(std::string& error, const Work& work) {
  try {
    work();
    return MKBENCH_OK;
  } catch (const std::exception& e) {
    error = e.what();
    return MKBENCH_FAILED;
  }
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  const mkbench_model m = mkbench_own(mkbench_own(args).model);
  if (m.qk_norm == 0 || m.qkv_bias != 0 || m.rope_scaling != MKBENCH_ROPE_UNSCALED ||
      m.norm_offset != 0 || m.activation != MKBENCH_SILU || m.embedding_multiplier != 0) {
    open_error = "model: wanted a Qwen3: QK-norm, no biases, no norm offset, SiLU, nothing scaled";
    return MKBENCH_UNFIT_MODEL;
  }
  return guarded(open_error, [&] { *engine = new mkbench_engine(mkbench_own(args)); });
}
void close_engine(mkbench_engine* e) { delete e; }
int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  return guarded(e->error, [&] { e->prefill(ids, n); });
}
int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  return guarded(e->error, [&] { e->decode(mkbench_own(args)); });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
int32_t set_timeline(mkbench_engine* e, mkbench_span* spans, int32_t room) {
  e->spans = Spans(spans, room);
  return MKBENCH_OK;
}
const char* phase_name(int32_t phase) { return phases[phase].c_str(); }
int32_t go_back(mkbench_engine* e, int32_t position) {
  e->position = position;
  return MKBENCH_OK;
}
int32_t reset(mkbench_engine* e) { return go_back(e, 0); }

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};  // what stays 0 or NULL is not offered
    t.size = sizeof t;
    t.version = MKBENCH_ENGINE_ABI_VERSION;
    t.name = "naive-cuda";
    t.devices = MKBENCH_DEVICE_CUDA;
    t.can = NAIVE_CAN;
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
    t.rewind = go_back;
    t.set_timeline = set_timeline;
    t.phase_name = phase_name;
    return t;
  }();
  return &table;
}
