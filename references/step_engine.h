// Makes an engine of mkbench (engine_abi.h) from a class that decodes one token at a time:
//
//     struct Mine : mkbench_step::Step {
//       static constexpr const char* name = "mine";  // as reports show it
//       void open(const mkbench_model& model, const mkbench_step::Tensors& tensors) { ... }
//       int32_t step(int32_t token, int32_t position) { ... }
//     };
//     MKBENCH_STEP_ENGINE(Mine)
//
// step() embeds `token`, writes the KV row of `position`, and returns the id of the largest logit,
// the lowest id among equals. The rows below `position` stand, the others count as never written.
// Beside steps() the progress word stays at the first position of a call; a kernel that writes its
// own replaces table<Mine>().progress.
// Prefill, forced and late ids, rewind, progress and the bounds of the KV cache come from this
// header. What the class throws becomes last_error(): no exception crosses the C interface. open()
// throws Unfit if it has no code for the model. tests/plugins/step_cpu.cpp is an example.
//
// A class for a model that mkbench_model does not describe has another open(), which reads the model
// from tensors.args.config_json and returns its vocabulary's size (tests/plugins/gpt2_cpu.cpp):
//
//     int32_t open(const mkbench_step::Tensors& tensors);
//
// Other forms of step(): the first one shows logits, the second one leaves ids on the device.
//
//     int32_t step(int32_t token, int32_t position, float* logits);
//     void steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits);
//
// logits: null where the time is reported, else fp32 [vocab], or [n, vocab], in memory of the device. steps()
// runs n steps, in one launch if it can, and all its pointers are memory of the device: step 0 takes
// *token, a later one the id emitted before it. Forced ids come one by one, with n = 1. Beside either,
//
//     void prefill(const int32_t* tokens, int32_t n);
//
// writes rows 0 .. n - 1; tokens is memory of the device beside steps(). Without it, steps write them.
//
// With this member, a report on a wrong engine names layer and phase (mkbench_show of engine_abi.h);
// it fills s.out, memory of the host, and returns whether the class shows that state.
//
//     bool show(const mkbench_show& s);
//
// With this one, an engine that keeps its weights in fewer bits says what they stand for (dequantised() of
// engine_abi.h); it returns false for a weight that it uses as it was handed out.
//
//     bool dequantised(const char* name, float* values);
//
// and with this one how it keeps it, so that its share of the ceiling is told (storage() there).
//
//     const mkbench_storage* storage(const char* name);
//
// The engine is for CUDA if nvcc compiles this, or if cuda_runtime.h comes before it, else for the
// CPU. Work on the default stream may still run when a call returns; a class with a stream that does
// not wait for the default one synchronises it at both ends. More of engine_abi.h can be added to
// mkbench_step::table<Mine>(), in place of the macro, as tests/plugins/naive_cuda.cu does.
#ifndef MKBENCH_REFERENCES_STEP_ENGINE_H
#define MKBENCH_REFERENCES_STEP_ENGINE_H

#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine_abi.h"

namespace mkbench_step {

// The base of a class with step(): what a class may say of itself under the same name.
struct Step {
  // MKBENCH_NOT_DETERMINISTIC and MKBENCH_ONE_LAUNCH are added, MKBENCH_CAN_LOGITS left out.
  static constexpr uint32_t can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID;
  static constexpr int32_t precision = MKBENCH_PRECISION_BF16;
  static constexpr int32_t context_limit = 0;  // the most rows of the KV cache; 0: any number

  void step(), steps(), prefill(), show(), dequantised(), storage();  // what the class lacks
};

// open() has no code for this model, or (MKBENCH_UNFIT_ENV) cannot run on this machine.
struct Unfit : std::runtime_error {
  explicit Unfit(const std::string& why, int32_t code = MKBENCH_UNFIT_MODEL)
      : std::runtime_error(why), status(code) {}
  int32_t status;
};

#ifdef CUDART_VERSION
constexpr uint32_t kDevice = MKBENCH_DEVICE_CUDA;
// Throws if a CUDA call has failed: MKBENCH_STEP_CUDA(cudaMalloc(&p, bytes));
#define MKBENCH_STEP_CUDA(call) mkbench_step::check(call, #call)
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the next check_launches() reports it again
  const std::string why = std::string(call) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorNoKernelImageForDevice)
    throw Unfit(why, MKBENCH_UNFIT_ENV);
  throw std::runtime_error(why);
}
inline void* allocate(size_t bytes) {
  void* memory = nullptr;
  MKBENCH_STEP_CUDA(cudaMalloc(&memory, bytes));
  return memory;
}
inline void release(void* memory) { cudaFree(memory); }
inline void copy(void* to, const void* from, size_t bytes) {
  MKBENCH_STEP_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}
inline void check_launches() { check(cudaGetLastError(), "a kernel launch"); }
#else
constexpr uint32_t kDevice = MKBENCH_DEVICE_CPU;
inline void* allocate(size_t bytes) { return ::operator new(bytes); }
inline void release(void* memory) { ::operator delete(memory); }
inline void copy(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }
inline void check_launches() {}
#endif

struct Release {
  void operator()(void* memory) const { release(memory); }
};
// Memory of the device, for a KV cache or scratch: keys = mkbench_step::make<float>(count);
template <class T>
using Memory = std::unique_ptr<T[], Release>;
template <class T>
Memory<T> make(size_t count) {
  return Memory<T>(static_cast<T*>(allocate(count * sizeof(T))));
}

inline std::string text(int64_t rows, int64_t cols, int32_t dtype) {
  return std::string("[") + std::to_string(rows) + ", " + std::to_string(cols) + "] of type " +
         std::to_string(dtype);
}

// What open() gets; its pointers stay valid until the engine is closed.
struct Tensors {
  mkbench_open args;  // max_context, the rows that the KV cache must hold, among others

  // A weight, bf16 in memory of the device. A vector is [rows, 1].
  template <class T = uint16_t>
  const T* get(const std::string& name, int64_t rows, int64_t cols = 1) const {
    for (uint32_t i = 0; i < args.tensor_count; ++i) {
      const mkbench_tensor t = mkbench_own(args.tensors[i]);
      if (name != t.name) continue;
      if (t.dtype != MKBENCH_BF16 || t.shape[0] != rows || t.shape[1] != cols)
        throw Unfit(name + ": found " + text(t.shape[0], t.shape[1], t.dtype) + ", wanted " +
                    text(rows, cols, MKBENCH_BF16));
      return static_cast<const T*>(t.data);
    }
    throw Unfit(name + ": there is no such tensor");
  }
};

// The weights of a layer; norms of heads and biases are null where the model has none.
template <class T>
struct Layer {
  const T* input_norm;                // [hidden]
  const T* q;                         // [heads * head_dim, hidden]
  const T *k, *v;                     // [kv_heads * head_dim, hidden]
  const T* o;                         // [hidden, heads * head_dim]
  const T *q_norm, *k_norm;           // [head_dim], before RoPE, for each head
  const T* post_norm;                 // [hidden]
  const T *gate, *up;                 // [intermediate, hidden]
  const T* down;                      // [hidden, intermediate]
  const T *q_bias, *k_bias, *v_bias;  // as long as the rows of q, k and v
};

// All weights of a model, with their shapes checked.
template <class T = uint16_t>
struct Weights {
  const T *embedding, *head;  // [vocab, hidden], the same memory where the model is tied
  const T* final_norm;        // [hidden]
  std::vector<Layer<T>> layers;

  Weights() = default;
  Weights(const mkbench_model& m, const Tensors& tensors)
      : embedding(tensors.get<T>("model.embed_tokens.weight", m.vocab, m.hidden)),
        head(tensors.get<T>("lm_head.weight", m.vocab, m.hidden)),
        final_norm(tensors.get<T>("model.norm.weight", m.hidden)) {
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    for (int32_t i = 0; i < m.layers; ++i) {
      const auto get = [&](const char* name, int64_t rows, int64_t cols = 1, int32_t there = 1) {
        const std::string whole = std::string("model.layers.") + std::to_string(i) + "." + name;
        return there != 0 ? tensors.get<T>(whole, rows, cols) : nullptr;
      };
      layers.push_back({get("input_layernorm.weight", m.hidden),
                        get("self_attn.q_proj.weight", q, m.hidden),
                        get("self_attn.k_proj.weight", kv, m.hidden),
                        get("self_attn.v_proj.weight", kv, m.hidden),
                        get("self_attn.o_proj.weight", m.hidden, q),
                        get("self_attn.q_norm.weight", m.head_dim, 1, m.qk_norm),
                        get("self_attn.k_norm.weight", m.head_dim, 1, m.qk_norm),
                        get("post_attention_layernorm.weight", m.hidden),
                        get("mlp.gate_proj.weight", m.intermediate, m.hidden),
                        get("mlp.up_proj.weight", m.intermediate, m.hidden),
                        get("mlp.down_proj.weight", m.hidden, m.intermediate),
                        get("self_attn.q_proj.bias", q, 1, m.qkv_bias),
                        get("self_attn.k_proj.bias", kv, 1, m.qkv_bias),
                        get("self_attn.v_proj.bias", kv, 1, m.qkv_bias)});
    }
  }
};

// Which of the functions S has of its own.
template <class S>
constexpr bool kHasSteps = !std::is_same_v<decltype(&S::steps), decltype(&Step::steps)>;
template <class S>
constexpr bool kHasPrefill = !std::is_same_v<decltype(&S::prefill), decltype(&Step::prefill)>;
template <class S>
constexpr bool kHasShow = !std::is_same_v<decltype(&S::show), decltype(&Step::show)>;
template <class S>
constexpr bool kHasDequantised =
    !std::is_same_v<decltype(&S::dequantised), decltype(&Step::dequantised)>;
template <class S>
constexpr bool kHasStorage = !std::is_same_v<decltype(&S::storage), decltype(&Step::storage)>;
// By a call: &S::open does not compile where S has several of them.
template <class S>
using ReadsConfig = decltype(std::declval<S&>().open(std::declval<const Tensors&>()));
template <class S, class = void>
constexpr bool kReadsConfig = false;
template <class S>
constexpr bool kReadsConfig<S, std::void_t<ReadsConfig<S>>> = true;
template <class S>
constexpr bool kHasLogits = std::is_invocable_v<decltype(&S::step), S&, int32_t, int32_t, float*>;

// The engine around a class: the place in the sequence, and calls of step() or steps(). Ids that
// the class reads lie in host memory beside step(), in memory of the device beside steps().
template <class S>
struct Frame {
  S step;
  int32_t vocab, max_context;
  int32_t position = 0;          // KV rows written
  bool has_pending = false;      // there is an input of the next step
  int32_t pending_id = 0;        // it, beside step()
  Memory<int32_t> ids;           // it, beside steps(), and ids that mkbench has given
  volatile int32_t running = 0;  // position of the running step
  char error[512] = "";

  explicit Frame(const mkbench_open& args) : max_context(args.max_context) {
    if (args.batch != 1) throw Unfit("batch: wanted 1");
    if constexpr (kHasSteps<S>) ids = make<int32_t>(size_t(max_context) + 1);
    if constexpr (kReadsConfig<S>) {
      vocab = step.open(Tensors{args});
    } else {
      if (args.model == nullptr) throw Unfit(MKBENCH_NO_RECORD);
      const mkbench_model model = mkbench_own(args.model);
      vocab = model.vocab;
      step.open(model, Tensors{args});
    }
    check_launches();
  }

  void go_to(int32_t where) {
    position = where;
    has_pending = false;
  }

  void prefill(const int32_t* prompt, int32_t n) {
    check_room("prefill", n - 1);
    running = position;
    const int32_t* tokens = given(prompt, n - 1);
    if constexpr (kHasPrefill<S>) {
      if (n > 1) step.prefill(tokens, n - 1);
      position = n - 1;
    }
    while (position < n - 1) run(tokens + position, 1, pending(), nullptr);
    set_pending(prompt + n - 1);
  }

  void decode(const mkbench_decode& d) {
    check_room("decode", int64_t{position} + d.n);
    if (d.late_id >= 0) set_pending(&d.late_id);
    if (d.forced == nullptr && !has_pending) throw std::runtime_error("decode: no id is pending");
    std::vector<int32_t> host(kHasSteps<S> ? 0 : size_t(d.n));
    int32_t* emitted = kHasSteps<S> ? d.ids : host.data();
    if (d.forced == nullptr) {
      run(pending(), d.n, emitted, d.logits);
    } else {
      const int32_t* forced = given(d.forced, d.n);
      for (int32_t t = 0; t < d.n; ++t) run(forced + t, 1, emitted + t, row(d.logits, t));
    }
    set_pending(emitted + d.n - 1);
    if (!kHasSteps<S>) copy(d.ids, emitted, host.size() * sizeof(int32_t));
  }

  // Where the pending id lies.
  int32_t* pending() { return kHasSteps<S> ? ids.get() : &pending_id; }
  void set_pending(const int32_t* id) {
    if constexpr (kHasSteps<S>)
      copy(pending(), id, sizeof *id);
    else
      pending_id = *id;
    has_pending = true;
  }

 private:
  void check_room(const char* what, int64_t rows) const {
    if (rows > max_context)
      throw std::runtime_error(std::string(what) + ": " + std::to_string(rows) +
                               " KV rows needed, max_context is " + std::to_string(max_context));
  }

  float* row(float* logits, int32_t t) const {
    return logits != nullptr ? logits + int64_t{t} * vocab : nullptr;
  }

  // `n` ids of the host, where the class reads them.
  const int32_t* given(const int32_t* host, int32_t n) {
    if (!kHasSteps<S> || n == 0) return host;
    copy(ids.get() + 1, host, size_t(n) * sizeof *host);
    return ids.get() + 1;
  }

  // n steps, the first one from *token.
  void run(const int32_t* token, int32_t n, int32_t* emitted, float* logits) {
    if constexpr (kHasSteps<S>) {
      running = position;
      step.steps(token, position, n, emitted, logits);
      position += n;
    } else {
      for (int32_t t = 0; t < n; ++t, token = emitted++, ++position) {
        running = position;
        if constexpr (kHasLogits<S>)
          *emitted = step.step(*token, position, row(logits, t));
        else
          *emitted = step.step(*token, position);
        if (*emitted < 0 || *emitted >= vocab)
          throw std::runtime_error(std::string("step() at position ") + std::to_string(position) +
                                   ": found id " + std::to_string(*emitted) + ", wanted 0 to " +
                                   std::to_string(vocab - 1));
      }
    }
  }
};

// The engine behind the pointer that mkbench holds.
template <class S>
Frame<S>& frame(mkbench_engine* engine) {
  return *reinterpret_cast<Frame<S>*>(engine);
}

// Runs `work`, and keeps the text of its exception in `error`. It takes no memory for it.
template <class Work>
int32_t guarded(char (&error)[512], const Work& work) noexcept {
  const auto failed = [&](const char* what, int32_t status) {
    std::snprintf(error, sizeof error, "%s", what);
    return status;
  };
  try {
    work();
    return MKBENCH_OK;
  } catch (const Unfit& e) {
    return failed(e.what(), e.status);
  } catch (const std::bad_alloc&) {
    return failed("no memory", MKBENCH_UNFIT_ENV);
  } catch (const std::exception& e) {
    return failed(e.what(), MKBENCH_FAILED);
  } catch (...) {
    return failed("an exception that is not a std::exception", MKBENCH_FAILED);
  }
}

// A call of an open engine; whatever it throws, it has failed.
template <class S, class Work>
int32_t call(mkbench_engine* engine, const Work& work) noexcept {
  const auto checked = [&] { work(frame<S>(engine)), check_launches(); };
  return guarded(frame<S>(engine).error, checked) == MKBENCH_OK ? MKBENCH_OK : MKBENCH_FAILED;
}

template <class S>
mkbench_engine_abi table() {
  static_assert((S::can & (MKBENCH_CAN_VECTORS | MKBENCH_CAN_HIDDEN)) == 0,
                "step_engine.h takes no vectors and shows no hidden ones");
  static char open_error[512] = "";
  mkbench_engine_abi t{};
  t.size = sizeof t;
  t.version = MKBENCH_ENGINE_ABI_VERSION;
  t.name = S::name;
  t.devices = kDevice;
  t.can = S::can;
  if (!kHasSteps<S> && !kHasLogits<S>) t.can &= ~uint32_t{MKBENCH_CAN_LOGITS};
  t.precision = S::precision;
  t.max_context = S::context_limit;
  t.open = [](const mkbench_open* args, mkbench_engine** engine) {
    return guarded(open_error, [&] {
      *engine = reinterpret_cast<mkbench_engine*>(new Frame<S>(mkbench_own(args)));
    });
  };
  t.close = [](mkbench_engine* e) { delete &frame<S>(e); };
  t.reset = [](mkbench_engine* e) { return call<S>(e, [](Frame<S>& f) { f.go_to(0); }); };
  t.prefill = [](mkbench_engine* e, const int32_t* prompt, int32_t n) {
    return call<S>(e, [&](Frame<S>& f) { f.prefill(prompt, n); });
  };
  t.decode = [](mkbench_engine* e, const mkbench_decode* args) {
    return call<S>(e, [&](Frame<S>& f) { f.decode(mkbench_own(args)); });
  };
  t.last_error = [](mkbench_engine* e) -> const char* {
    return e != nullptr ? frame<S>(e).error : open_error;
  };
  t.progress = [](mkbench_engine * e) -> const volatile int32_t* { return &frame<S>(e).running; };
  t.rewind = [](mkbench_engine* e, int32_t position) {
    return call<S>(e, [&](Frame<S>& f) { f.go_to(position); });
  };
  if constexpr (kHasShow<S>) {
    t.show = [](mkbench_engine* e, const mkbench_show* args) -> int32_t {
      bool shown = false;
      const int32_t status =
          call<S>(e, [&](Frame<S>& f) { shown = f.step.show(mkbench_own(args)); });
      return status != MKBENCH_OK || shown ? status : int32_t{MKBENCH_NOT_SHOWN};
    };
  }
  if constexpr (kHasDequantised<S>) {
    t.dequantised = [](mkbench_engine* e, const char* name, float* values) -> int32_t {
      bool changed = false;
      const int32_t status =
          call<S>(e, [&](Frame<S>& f) { changed = f.step.dequantised(name, values); });
      return status != MKBENCH_OK || changed ? status : int32_t{MKBENCH_NOT_SHOWN};
    };
  }
  if constexpr (kHasStorage<S>) {
    t.storage = [](mkbench_engine* e, const char* name) -> const mkbench_storage* {
      return frame<S>(e).step.storage(name);
    };
  }
  return t;
}

}  // namespace mkbench_step

#define MKBENCH_STEP_ENGINE(Class)                                        \
  const mkbench_engine_abi* mkbench_engine_table(void) {                  \
    static const mkbench_engine_abi table = mkbench_step::table<Class>(); \
    return &table;                                                        \
  }

#endif
