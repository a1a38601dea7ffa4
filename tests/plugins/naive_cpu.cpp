// A decoder of dense models (Qwen3, Qwen2, Llama) in plain C++ behind mkbench's engine ABI: one position at a time, fp32 between
// bf16 weights. Read it beside references/engine_abi.h; it needs nothing else:
//
//     g++ -O3 -shared -fPIC -I<mkbench's folder> naive_cpu.cpp -o naive_cpu.so
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "references/engine_abi.h"

namespace {

// mkbench's tests break this file with -DNAIVE_FAULT=kTheta and so on; the tables of
// tests/plugin/test_plugins.py give the expected verdict of each fault.
enum Fault {
  kNone,
  kTheta,      // RoPE's base is the library's default, 1e4
  kVocab,      // argmax over 384 partial results by halving: 3 -> 1 loses every third
  kCache,      // attention misses the newest row
  kHang,       // decode() does not return
  kCrash,      // decode() ends the process by a signal
  kShort,      // the last id is not generated
  kOverrun,    // one id too many is written
  kNan,        // a logit is not a number
  kOverwrite,  // a weight is changed
  kFails,      // decode() gives up
  kStateful,   // reset() keeps the first row
  kPending,    // a late id is ignored
  kRewind,     // rewind() is ignored
  kLength,     // a step that sees 200 KV rows gives another id
  kDeep,       // layer 2 neither norms nor rotates its keys
  kUnnormed    // hidden vectors are those before the final norm
};
#ifndef NAIVE_FAULT
#define NAIVE_FAULT kNone
#endif
#ifndef NAIVE_CAN
#define NAIVE_CAN                                                                        \
  (MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID | MKBENCH_CAN_VECTORS | \
   MKBENCH_CAN_HIDDEN)
#endif
#ifndef NAIVE_MAX_CONTEXT
#define NAIVE_MAX_CONTEXT 0  // any number
#endif
constexpr Fault kFault = NAIVE_FAULT;
#ifndef NAIVE_BARE
#define NAIVE_BARE 0
#endif
constexpr bool kBare =
    NAIVE_BARE;  // offers no late id, no vectors and no function that is optional

using Vector = std::vector<float>;

struct Matrix {
  const uint16_t* data = nullptr;  // bf16 (rows, cols); null: the model has none
  int rows = 0, cols = 0;
};

struct Layer {
  Matrix input_norm, q, k, v, o, q_norm, k_norm, post_norm, gate, up, down;
  Matrix q_bias, k_bias, v_bias;
  Vector keys, values;  // (max_context, kv_heads * head_dim)
  Vector hidden;        // after the layer, of the last step
};

float widen(float x) { return x; }
float widen(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// open() refuses the model.
struct Unfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The dot product of w (bf16 or float) and x, summed in 16 interleaved parts so that a compiler can
// vectorise it.
template <typename T>
float dot(const T* w, const float* x, int n) {
  float part[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) part[j] += widen(w[i + j]) * x[i + j];
  }
  for (; i < n; ++i) part[0] += widen(w[i]) * x[i];
  float sum = 0;
  for (const float p : part) sum += p;
  return sum;
}

// Returns w . x + bias, (rows).
Vector multiply(const Matrix& w, const Vector& x, const Matrix& bias = {}) {
  Vector y(w.rows);
  for (int r = 0; r < w.rows; ++r) y[r] = dot(w.data + size_t(r) * w.cols, x.data(), w.cols);
  for (int r = 0; r < bias.rows; ++r) y[r] += widen(bias.data[r]);
  return y;
}

// x = weight * x / sqrt(mean(x^2) + eps), in place.
void rms_norm(float* x, const Matrix& weight, double eps) {
  const int n = weight.rows;
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += double(x[i]) * x[i];
  const auto scale = float(1 / std::sqrt(squares / n + eps));
  for (int i = 0; i < n; ++i) x[i] *= scale * widen(weight.data[i]);
}

Vector normed(Vector x, const Matrix& weight, double eps) {
  rms_norm(x.data(), weight, eps);
  return x;
}

void add(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

// The id of the largest logit; among equals the lowest id.
int32_t argmax(const Vector& logits) {
  if (kFault != kVocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < int32_t(logits.size()); ++i) {
      if (logits[i] > logits[best]) best = i;
    }
    return best;
  }
  std::vector<int32_t> lane(384, -1);
  const auto better = [&](int32_t a, int32_t b) {
    return b >= 0 && (a < 0 || logits[b] > logits[a] || (logits[b] == logits[a] && b < a)) ? b : a;
  };
  for (size_t i = 0; i < logits.size(); ++i) lane[i % 384] = better(lane[i % 384], int32_t(i));
  for (int half = 384 / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] = better(lane[i], lane[i + half]);
  }
  return lane[0];
}

}  // namespace

// The array of set_timeline(): what the one thread does, from one call of end() to the next.
class Spans {
 public:
  void set(mkbench_span* spans, int32_t room) { spans_ = spans, room_ = room; }
  void begin() { used_ = 0, from_ = now(); }
  void end(int32_t phase) {
    const uint64_t to = spans_ != nullptr ? now() : 0;
    if (used_ < room_) spans_[used_++] = {0, phase, from_, to};
    from_ = to;
  }

 private:
  static uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
  }
  mkbench_span* spans_ = nullptr;
  int32_t room_ = 0, used_ = 0;
  uint64_t from_ = 0;
};
enum Phase { kAttention, kMlp, kHead };

struct mkbench_engine {
  mkbench_model m;
  int max_context = 0;
  Matrix embedding, final_norm, head;
  std::vector<Layer> layers;
  Vector frequency;  // (head_dim / 2) radians a position
  int position = 0;
  int32_t pending = -1;
  volatile int32_t running = 0;  // position of the running step
  std::string error;
  Spans spans;

  explicit mkbench_engine(const mkbench_open& args)
      : m(mkbench_own(args.model)), max_context(args.max_context) {
    const auto find = [&](const std::string& name) -> Matrix {
      for (uint32_t i = 0; i < args.tensor_count; ++i) {
        const mkbench_tensor t = mkbench_own(args.tensors[i]);
        if (name != t.name) continue;
        if (t.dtype != MKBENCH_BF16) throw Unfit(name + ": wanted bf16");
        return {static_cast<const uint16_t*>(t.data), int(t.shape[0]), int(t.shape[1])};
      }
      throw Unfit("there is no tensor " + name);
    };
    if (args.model == nullptr) throw Unfit(MKBENCH_NO_RECORD);
    if (m.norm_offset != 0 || m.activation != MKBENCH_SILU || m.embedding_multiplier != 0)
      throw Unfit("model: wanted norms without offset, SiLU, no embedding multiplier");
    embedding = find("model.embed_tokens.weight");
    final_norm = find("model.norm.weight");
    head = find("lm_head.weight");
    const size_t cache = size_t(max_context) * m.kv_heads * m.head_dim;
    for (int i = 0; i < m.layers; ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      const auto get = [&](const char* name, int there = 1) {
        return there != 0 ? find(at + name) : Matrix{};
      };
      layers.push_back(
          {get("input_layernorm.weight"), get("self_attn.q_proj.weight"),
           get("self_attn.k_proj.weight"), get("self_attn.v_proj.weight"),
           get("self_attn.o_proj.weight"), get("self_attn.q_norm.weight", m.qk_norm),
           get("self_attn.k_norm.weight", m.qk_norm), get("post_attention_layernorm.weight"),
           get("mlp.gate_proj.weight"), get("mlp.up_proj.weight"), get("mlp.down_proj.weight"),
           get("self_attn.q_proj.bias", m.qkv_bias), get("self_attn.k_proj.bias", m.qkv_bias),
           get("self_attn.v_proj.bias", m.qkv_bias), Vector(cache), Vector(cache),
           Vector(m.hidden)});
    }
    const auto theta = float(kFault == kTheta ? 1e4 : m.rope_theta);
    for (int i = 0; i < m.head_dim; i += 2) {
      frequency.push_back(scaled(1 / std::pow(theta, float(i) / float(m.head_dim))));
    }
  }

  // A frequency of RoPE, scaled as the model says.
  float scaled(float f) const {
    if (m.rope_scaling == MKBENCH_ROPE_UNSCALED) return f;
    if (m.rope_scaling == MKBENCH_ROPE_LINEAR) return f / float(m.rope_factor);
    if (m.rope_scaling != MKBENCH_ROPE_LLAMA3) throw Unfit("rope_scaling: wanted 0 to 2");
    // Waves per original context: few are divided by the factor, many stay, others are mixed.
    const double waves = m.rope_original_positions * double(f) / (2 * std::acos(-1.0));
    const double share =
        (waves - m.rope_low_freq_factor) / (m.rope_high_freq_factor - m.rope_low_freq_factor);
    const double kept = std::min(1.0, std::max(0.0, share));
    return float((1 - kept) * f / m.rope_factor + kept * f);
  }

  // RMSNorm over each head of `x`, where the model has one, then rotation of its pairs (i, i + head_dim / 2).
  void norm_and_rotate(Vector& x, const Matrix& weight) const {
    const int half = m.head_dim / 2;
    for (float* h = x.data(); h < x.data() + x.size(); h += m.head_dim) {
      if (weight.data != nullptr) rms_norm(h, weight, m.rms_norm_eps);
      for (int i = 0; i < half; ++i) {
        const float angle = frequency[i] * float(position);
        const float c = std::cos(angle), s = std::sin(angle), low = h[i], high = h[i + half];
        h[i] = low * c - high * s;
        h[i + half] = high * c + low * s;
      }
    }
  }

  // Writes the KV row of this position and returns the attention over all rows so far,
  // (heads * head_dim).
  Vector attention(Layer& layer, const Vector& x) const {
    Vector q = multiply(layer.q, x, layer.q_bias), k = multiply(layer.k, x, layer.k_bias);
    const Vector v = multiply(layer.v, x, layer.v_bias);
    norm_and_rotate(q, layer.q_norm);
    if (kFault != kDeep || &layer != &layers[2]) norm_and_rotate(k, layer.k_norm);
    const size_t width = k.size();
    std::copy(k.begin(), k.end(), layer.keys.begin() + position * width);
    std::copy(v.begin(), v.end(), layer.values.begin() + position * width);
    const int rows = position + (kFault == kCache && position > 0 ? 0 : 1);
    Vector out(q.size()), p(rows);
    for (int h = 0; h < m.heads; ++h) {
      const float* query = q.data() + size_t(h) * m.head_dim;
      const size_t at = size_t(h / (m.heads / m.kv_heads)) * m.head_dim;
      float largest = -INFINITY, sum = 0;
      for (int t = 0; t < rows; ++t) {
        const float* key = layer.keys.data() + t * width + at;
        p[t] = dot(key, query, m.head_dim) / std::sqrt(float(m.head_dim));
        largest = std::max(largest, p[t]);
      }
      for (float& e : p) sum += e = std::exp(e - largest);
      for (int t = 0; t < rows; ++t) {
        const float* value = layer.values.data() + t * width + at;
        const float share = p[t] / sum;
        float* mixed = out.data() + size_t(h) * m.head_dim;
        for (int i = 0; i < m.head_dim; ++i) mixed[i] += share * value[i];
      }
    }
    return out;
  }

  Vector step(int32_t id) {
    if (id < 0 || id >= m.vocab) throw std::runtime_error("no such id: " + std::to_string(id));
    return step(embedding.data + size_t(id) * m.hidden);
  }

  // Runs one position from a bf16 vector (hidden): writes its KV rows and returns the final hidden
  // state, (hidden).
  Vector step(const uint16_t* input) {
    if (position >= max_context) throw std::runtime_error("the KV cache is full");
    running = position;
    Vector h(m.hidden);
    for (int i = 0; i < m.hidden; ++i) h[i] = widen(input[i]);
    for (Layer& layer : layers) {
      add(h, multiply(layer.o, attention(layer, normed(h, layer.input_norm, m.rms_norm_eps))));
      spans.end(kAttention);
      const Vector x = normed(h, layer.post_norm, m.rms_norm_eps);
      Vector gate = multiply(layer.gate, x);
      const Vector up = multiply(layer.up, x);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(h, multiply(layer.down, gate));
      layer.hidden = h;
      spans.end(kMlp);
    }
    ++position;
    return h;
  }

  void decode(const mkbench_decode& d) {
    const int32_t n = d.n;
    if (kFault == kHang) {
      for (;;) running = position;
    }
    if (kFault == kCrash) std::raise(SIGSEGV);
    if (kFault == kFails) throw std::runtime_error("it gives\nup");
    spans.begin();
    if (d.late_id >= 0 && kFault != kPending) pending = d.late_id;
    for (int32_t t = 0; t < n; ++t) {
      const Vector h = d.vectors != nullptr ? step(d.vectors + size_t(t) * m.hidden)
                                            : step(d.forced != nullptr ? d.forced[t] : pending);
      const Vector x = normed(h, final_norm, m.rms_norm_eps);
      Vector logits = multiply(head, x);
      if (d.hidden != nullptr) {
        const Vector& shown = kFault == kUnnormed ? h : x;
        std::copy(shown.begin(), shown.end(), d.hidden + size_t(t) * m.hidden);
      }
      if (kFault == kNan) logits[7] = NAN;
      if (kFault == kLength && position == 200) logits[argmax(logits) ^ 1] = 1e3f;
      pending = argmax(logits);
      spans.end(kHead);
      if (kFault != kShort || t + 1 < n) d.ids[t] = pending;
      if (d.logits != nullptr)
        std::copy(logits.begin(), logits.end(), d.logits + size_t(t) * m.vocab);
    }
    if (kFault == kOverrun) d.ids[n] = pending;
    if (kFault == kOverwrite) const_cast<uint16_t*>(layers[0].up.data)[5] ^= 1;
  }

  void show(const mkbench_show& s) const {
    const Layer& layer = layers.at(s.layer);
    if (s.what == MKBENCH_SHOW_HIDDEN) {
      std::copy(layer.hidden.begin(), layer.hidden.end(), s.out);
      return;
    }
    const size_t width = size_t(m.kv_heads) * m.head_dim, from = s.position * width;
    std::copy_n(layer.keys.begin() + from, width, s.out);
    std::copy_n(layer.values.begin() + from, width, s.out + width);
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
  } catch (const Unfit& e) {
    error = e.what();
    return MKBENCH_UNFIT_MODEL;
  } catch (const std::exception& e) {
    error = e.what();
    return MKBENCH_FAILED;
  }
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  return guarded(open_error, [&] { *engine = new mkbench_engine(mkbench_own(args)); });
}
void close_engine(mkbench_engine* e) { delete e; }
int32_t reset(mkbench_engine* e) {
  e->position = kFault == kStateful ? std::min(e->position, 1) : 0;
  e->pending = -1;
  return MKBENCH_OK;
}
int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  return guarded(e->error, [&] {
    for (int32_t i = 0; i + 1 < n; ++i) e->step(ids[i]);
    e->pending = ids[n - 1];
  });
}
int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  return guarded(e->error, [&] { e->decode(mkbench_own(args)); });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
const volatile int32_t* progress(mkbench_engine* e) { return &e->running; }
int32_t show(mkbench_engine* e, const mkbench_show* args) {
  const mkbench_show mine = mkbench_own(args);
  if (mine.what != MKBENCH_SHOW_HIDDEN && mine.what != MKBENCH_SHOW_KV_ROW)
    return MKBENCH_NOT_SHOWN;
  return guarded(e->error, [&] { e->show(mine); });
}
int32_t set_timeline(mkbench_engine* e, mkbench_span* spans, int32_t room) {
  e->spans.set(spans, room);
  return MKBENCH_OK;
}
const char* phase_name(int32_t phase) {
  return phase == kAttention ? "attention" : phase == kMlp ? "mlp" : "head";
}
int32_t go_back(mkbench_engine* e, int32_t position) {
  if (kFault != kRewind) e->position = position;
  return MKBENCH_OK;
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};  // what stays 0 or NULL is not offered
    t.size = sizeof t;
    t.version = MKBENCH_ENGINE_ABI_VERSION;
    t.name = "naive-cpu";
    t.devices = MKBENCH_DEVICE_CPU;
    t.max_context = NAIVE_MAX_CONTEXT;
    t.can = (NAIVE_CAN) & (kBare ? MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED : ~0);
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    if constexpr ((NAIVE_CAN) != 0) t.progress = progress;
    if (kBare) return t;
    t.precision = MKBENCH_PRECISION_FP32_ACCUMULATE;
    t.rewind = go_back;
    t.set_timeline = set_timeline;
    t.phase_name = phase_name;
    t.show = show;
    return t;
  }();
  return &table;
}
