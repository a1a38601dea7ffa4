// A Qwen3 decoder of plain CUDA kernels behind mkbench's step_engine.h: some 400 launches a token,
// one operation a kernel, fp32 between bf16 weights and a bf16 KV cache. Read it beside
// references/step_engine.h and engine_abi.h; it needs nothing else:
//
//     nvcc -O3 -shared -Xcompiler -fPIC -arch=native -I<mkbench's folder> naive_cuda.cu -o mine.so
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "references/step_engine.h"

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

// h = embedding[*id], (n). An id that was not generated, -1, stands for 0.
__global__ void embed(const Bf16* embedding, const int32_t* id, float* h, int n,
                      Recorded launch = {}) {
  const Watch watch(launch);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) h[i] = __bfloat162float(embedding[size_t(max(*id, 0)) * n + i]);
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

// Writes the id of the largest logit (the lowest among equals) to *id. One block.
__global__ void argmax(const float* logits, int n, int32_t* id, Recorded launch = {}) {
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
  // place[0] is n where no logit is a number: *id stays -1.
  if (threadIdx.x == 0 && place[0] < n) *id = place[0];
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

struct Naive : mkbench_step::Step {
  static constexpr const char* name = "naive-cuda";
  static constexpr uint32_t can = NAIVE_CAN;
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;

  mkbench_model m;
  int max_context, q_width, kv_width;
  mkbench_step::Weights<Bf16> w;
  mkbench_step::Memory<Bf16> keys, values;  // (layers, max_context, kv_width)
  mkbench_step::Memory<float2> turns;       // (max_context, head_dim / 2)
  mkbench_step::Memory<float> h, x, q, k, v, mixed, gate, up, row, scores;
  Spans spans{nullptr, 0};

  void open(const mkbench_model& model, const mkbench_step::Tensors& tensors) {
    if (const char* why = mkbench_unlike_qwen3(&model)) throw mkbench_step::Unfit(why);
    using mkbench_step::make;
    m = model;
    max_context = tensors.args.max_context;
    q_width = m.heads * m.head_dim;
    kv_width = m.kv_heads * m.head_dim;
    w = {m, tensors};
    keys = make<Bf16>(size_t(m.layers) * max_context * kv_width);
    values = make<Bf16>(size_t(m.layers) * max_context * kv_width);
    for (auto* buffer : {&h, &x}) *buffer = make<float>(m.hidden);
    for (auto* buffer : {&q, &mixed}) *buffer = make<float>(q_width);
    for (auto* buffer : {&k, &v}) *buffer = make<float>(kv_width);
    for (auto* buffer : {&gate, &up}) *buffer = make<float>(m.intermediate);
    row = make<float>(m.vocab);
    scores = make<float>(size_t(m.heads) * max_context);
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
    turns = make<float2>(table.size());
    mkbench_step::copy(turns.get(), table.data(), table.size() * sizeof(float2));
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
  void layers(const int32_t* id, int32_t position) {
    embed<<<blocks_for(m.hidden), kThreads>>>(w.embedding, id, h.get(), m.hidden,
                                              spans.next("embed"));
    const float2* now = turns.get() + size_t(position) * m.head_dim / 2;
    const int rows = position + 1;
    for (size_t i = 0; i < w.layers.size(); ++i) {
      const auto& l = w.layers[i];
      Bf16* all_keys = keys.get() + i * max_context * kv_width;
      Bf16* all_values = values.get() + i * max_context * kv_width;
      norm("input norm", h.get(), l.input_norm, x.get(), 1, m.hidden);
      product("q", l.q, x.get(), q.get(), q_width, m.hidden);
      product("k", l.k, x.get(), k.get(), kv_width, m.hidden);
      product("v", l.v, x.get(), v.get(), kv_width, m.hidden);
      norm("norm of q", q.get(), l.q_norm, q.get(), m.heads, m.head_dim);
      norm("norm of k", k.get(), l.k_norm, k.get(), m.kv_heads, m.head_dim);
      rotate<<<m.heads, m.head_dim / 2>>>(q.get(), now, spans.next("rope of q"));
      rotate<<<m.kv_heads, m.head_dim / 2>>>(k.get(), now, spans.next("rope of k"));
      const size_t row = size_t(position) * kv_width;
      store_row<<<blocks_for(kv_width), kThreads>>>(k.get(), all_keys + row, kv_width,
                                                    spans.next("row of k"));
      store_row<<<blocks_for(kv_width), kThreads>>>(v.get(), all_values + row, kv_width,
                                                    spans.next("row of v"));
      attention<<<m.heads, kThreads>>>(q.get(), all_keys, all_values, scores.get(), mixed.get(),
                                       rows, max_context, m.head_dim, m.heads / m.kv_heads,
                                       m.kv_heads, spans.next("attention"));
      product<true>("o", l.o, mixed.get(), h.get(), m.hidden, q_width);
      norm("post norm", h.get(), l.post_norm, x.get(), 1, m.hidden);
      product("gate", l.gate, x.get(), gate.get(), m.intermediate, m.hidden);
      product("up", l.up, x.get(), up.get(), m.intermediate, m.hidden);
      swiglu<<<blocks_for(m.intermediate), kThreads>>>(gate.get(), up.get(), m.intermediate,
                                                       spans.next("swiglu"));
      product<true>("down", l.down, gate.get(), h.get(), m.hidden, m.intermediate);
    }
  }

  // Without the LM head, which a prefill by steps() would compute.
  void prefill(const int32_t* tokens, int32_t n) {
    for (int32_t i = 0; i < n; ++i) layers(tokens + i, i);
  }

  void steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits) {
    for (int32_t t = 0; t < n; ++t) {
      layers(t == 0 ? token : ids + t - 1, position + t);
      norm("final norm", h.get(), w.final_norm, x.get(), 1, m.hidden);
      float* out = logits != nullptr ? logits + size_t(t) * m.vocab : row.get();
      product("lm head", w.head, x.get(), out, m.vocab, m.hidden);
      argmax<<<1, kArgmaxThreads>>>(out, m.vocab, ids + t, spans.next("argmax"));
    }
    if (kFault == kOverrun) MKBENCH_STEP_CUDA(cudaMemset(ids + n, 0, 4));
  }
};

Spans& spans_of(mkbench_engine* e) { return mkbench_step::frame<Naive>(e).step.spans; }

int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  spans_of(e).begin();
  const int32_t status = mkbench_step::table<Naive>().decode(e, args);
  spans_of(e).end();
  return status;
}
int32_t set_timeline(mkbench_engine* e, mkbench_span* spans, int32_t room) {
  spans_of(e) = Spans(spans, room);
  return MKBENCH_OK;
}
const char* phase_name(int32_t phase) { return phases[phase].c_str(); }

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t = mkbench_step::table<Naive>();
    t.decode = decode;  // what it adds to the header's
    t.set_timeline = set_timeline;
    t.phase_name = phase_name;
    return t;
  }();
  return &table;
}
