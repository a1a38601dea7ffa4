// llama.cpp behind mkbench's engine ABI: what a user would run instead, on the same weights.
//
// open() writes mkbench's tensors as a GGUF file into a temporary folder, lets llama.cpp load it as
// it loads any model, and removes it. All else is llama.cpp's public interface with its defaults:
// one sequence, a KV cache of f16 rows, flash attention where llama.cpp chooses it, CUDA graphs on a
// GPU. docs/opponents.md says how to build it, and what its settings are.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>
#include <unistd.h>
#ifdef LLAMA_ENGINE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "references/engine_abi.h"
#include "tests/engines/llama/gguf_file.h"

namespace {

// What llama.cpp said of an error since the last call of forget(). Its threads may say something at
// any time, and several engines may be open.
class Log {
 public:
  static void install() { llama_log_set(&Log::add, nullptr); }
  static void forget() {
    const std::lock_guard lock(mutex_);
    text_.clear();
  }
  static std::string text() {
    const std::lock_guard lock(mutex_);
    return text_.empty() ? "llama.cpp does not say why" : text_;
  }

 private:
  static void add(ggml_log_level level, const char* text, void*) {
    if (level != GGML_LOG_LEVEL_ERROR) return;
    const std::lock_guard lock(mutex_);
    for (const char* c = text; *c != 0 && text_.size() < 400; ++c) text_ += *c == '\n' ? ' ' : *c;
  }
  static inline std::mutex mutex_;
  static inline std::string text_;
};

// ------------------------------------------------------------------------------------- settings

template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;  // the first one is the default

constexpr const char* kWeights = "LLAMA_ENGINE_WEIGHTS";
const Words<ggml_type>& weight_types() {
  static const Words<ggml_type> types = {{"bf16", GGML_TYPE_BF16},
                                         {"f32", GGML_TYPE_F32},
                                         {"q8_0", GGML_TYPE_Q8_0},
                                         {"q4_0", GGML_TYPE_Q4_0}};
  return types;
}

constexpr const char* kKv = "LLAMA_ENGINE_KV";
const Words<ggml_type>& kv_types() {
  static const Words<ggml_type> types = {
      {"f16", GGML_TYPE_F16}, {"bf16", GGML_TYPE_BF16}, {"f32", GGML_TYPE_F32}};
  return types;
}

constexpr const char* kFlash = "LLAMA_ENGINE_FLASH";
const Words<llama_flash_attn_type>& flash_types() {
  static const Words<llama_flash_attn_type> types = {{"auto", LLAMA_FLASH_ATTN_TYPE_AUTO},
                                                     {"on", LLAMA_FLASH_ATTN_TYPE_ENABLED},
                                                     {"off", LLAMA_FLASH_ATTN_TYPE_DISABLED}};
  return types;
}

// The value of an environment variable; empty where it is not set.
std::string setting(const char* variable) {
  const char* found = std::getenv(variable);
  return found == nullptr ? "" : found;
}

template <typename T>
T type_of(const char* variable, const Words<T>& types) {
  const std::string found = setting(variable);
  if (found.empty()) return types.front().second;
  std::string names;
  for (const auto& [name, type] : types) {
    if (name == found) return type;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw OpenError(MKBENCH_UNFIT_MODEL,
                  std::string(variable) + ": found '" + found + "', wanted one of " + names);
}

// "-q8_0" for a setting that is not the default, for the engine's name. Nothing for a word that is
// none of the types: open() tells that.
template <typename T>
std::string suffix_of(const char* variable, const Words<T>& types, const std::string& before) {
  const std::string found = setting(variable);
  for (size_t i = 1; i < types.size(); ++i) {
    if (types[i].first == found) return before + found;
  }
  return "";
}

// One without the setting: on a GPU the CPU only looks up embeddings, and the models that fit a CPU
// are too small to share out. More threads spin while they wait for each other.
int thread_count() {
  const std::string found = setting("LLAMA_ENGINE_THREADS");
  if (found.empty()) return 1;
  int threads = 0;
  const char* end = found.data() + found.size();
  const auto [stop, error] = std::from_chars(found.data(), end, threads);
  if (error != std::errc() || stop != end || threads < 1 || threads > GGML_MAX_N_THREADS) {
    throw OpenError(MKBENCH_UNFIT_MODEL, "LLAMA_ENGINE_THREADS: found '" + found +
                                             "', wanted 1 to " +
                                             std::to_string(GGML_MAX_N_THREADS));
  }
  return threads;
}

// A folder that ends with its object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / "mkbench-llama-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) {
      throw OpenError(MKBENCH_UNFIT_ENV,
                      path_ + ": could not make this folder; TMPDIR names another");
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// --------------------------------------------------------------------------------------- llama.cpp

struct Free {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
  void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};

std::unique_ptr<llama_model, Free> load_model(const mkbench_open& args) {
  const bool cuda = args.device == MKBENCH_DEVICE_CUDA;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.gguf";
  write_gguf(path, args, type_of(kWeights, weight_types()));
  // One GPU, or none: without a list llama.cpp takes all that it finds.
  ggml_backend_dev_t devices[2] = {nullptr, nullptr};
  if (cuda) {
    const std::string name = "CUDA" + std::to_string(args.gpu);
    devices[0] = ggml_backend_dev_by_name(name.c_str());
    if (devices[0] == nullptr) throw OpenError(MKBENCH_UNFIT_ENV, "llama.cpp finds no " + name);
  }
  llama_model_params params = llama_model_default_params();
  params.devices = devices;
  params.n_gpu_layers = cuda ? -1 : 0;      // -1: all of them
  params.load_mode = LLAMA_LOAD_MODE_NONE;  // in memory: the file goes away
  std::unique_ptr<llama_model, Free> model(llama_model_load_from_file(path.c_str(), params));
  if (model == nullptr) throw OpenError(MKBENCH_UNFIT_ENV, "it loads no model: " + Log::text());
  return model;
}

std::unique_ptr<llama_context, Free> make_context(llama_model* model, const mkbench_open& args,
                                                  int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(args.max_context);
  params.n_batch = std::min(params.n_batch, params.n_ctx);
  params.n_seq_max = 1;
  params.n_threads = params.n_threads_batch = threads;
  params.type_k = params.type_v = type_of(kKv, kv_types());
  params.op_offload = args.device == MKBENCH_DEVICE_CUDA;
  params.offload_kqv = params.op_offload;
  params.no_perf = true;
  params.flash_attn_type = type_of(kFlash, flash_types());
  // ggml's flash attention on a CPU sums the values of f16 rows in f16.
  if (!params.offload_kqv && params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_AUTO)
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  std::unique_ptr<llama_context, Free> context(llama_init_from_model(model, params));
  if (context == nullptr) throw OpenError(MKBENCH_UNFIT_ENV, "it makes no context: " + Log::text());
  return context;
}

// The id of the largest logit, the lowest id among equals. Sixteen maxima side by side are what a
// compiler turns into vector instructions.
int32_t argmax(const float* logits, int32_t vocab) {
  float part[16];
  std::fill_n(part, 16, -INFINITY);
  int32_t i = 0;
  for (; i + 16 <= vocab; i += 16) {
    for (int j = 0; j < 16; ++j) part[j] = logits[i + j] > part[j] ? logits[i + j] : part[j];
  }
  float largest = *std::max_element(part, part + 16);
  for (; i < vocab; ++i) largest = std::max(largest, logits[i]);
  const auto at = static_cast<int32_t>(std::find(logits, logits + vocab, largest) - logits);
  if (at == vocab) throw std::runtime_error("all logits are NaN");
  return at;
}

}  // namespace

struct mkbench_engine {
  const bool cuda;
  const int vocab, max_context;
  std::unique_ptr<llama_model, Free> model;
  std::unique_ptr<ggml_threadpool, Free> pool;  // used by `context` until that is freed
  std::unique_ptr<llama_context, Free> context;
  int32_t position = 0, pending = -1;
  volatile int32_t running = 0;
  std::string error;

  explicit mkbench_engine(const mkbench_open& args)
      : cuda(args.device == MKBENCH_DEVICE_CUDA),
        vocab(mkbench_own(args.model).vocab),
        max_context(args.max_context),
        model(load_model(args)) {
    const int threads = thread_count();
    context = make_context(model.get(), args, threads);
    if (threads > 1) {
      // Without a pool ggml starts its threads for each token anew.
      ggml_threadpool_params params = ggml_threadpool_params_default(threads);
      pool.reset(ggml_threadpool_new(&params));
      llama_attach_threadpool(context.get(), pool.get(), nullptr);
    }
#ifdef LLAMA_ENGINE_CUDA
    if (cuda) cudaSetDevice(args.gpu);  // ggml may have left another one current
#endif
  }

  // Runs `n` ids from the current position on, with logits of the last one if `output`.
  void run(const int32_t* ids, int32_t n, bool output) {
    if (n > max_context - position) throw std::runtime_error("the KV cache is full");
    std::vector<llama_token> tokens(ids, ids + n);
    std::vector<llama_pos> positions(n);
    for (int32_t i = 0; i < n; ++i) positions[i] = position + i;
    std::vector<int8_t> outputs(n, 0);
    outputs.back() = output ? 1 : 0;
    llama_batch batch{};
    batch.n_tokens = n;
    batch.token = tokens.data();
    batch.pos = positions.data();
    batch.logits = outputs.data();
    Log::forget();
    const int32_t status = llama_decode(context.get(), batch);
    if (status != 0) {
      throw std::runtime_error("llama_decode() returned " + std::to_string(status) + ": " +
                               Log::text());
    }
    position += n;
    running = position;
  }

  void prefill(const int32_t* ids, int32_t n) {
    const auto most = static_cast<int32_t>(llama_n_batch(context.get()));
    for (int32_t i = 0; i + 1 < n; i += most) run(ids + i, std::min(most, n - 1 - i), false);
    llama_synchronize(context.get());
    pending = ids[n - 1];
  }

  void decode(const mkbench_decode& d) {
    std::vector<int32_t> emitted(d.n);
    if (d.late_id >= 0) pending = d.late_id;
    for (int32_t t = 0; t < d.n; ++t) {
      const int32_t input = d.forced != nullptr ? d.forced[t] : pending;
      run(&input, 1, true);
      const float* logits = llama_get_logits_ith(context.get(), -1);  // waits for the device
      if (logits == nullptr) throw std::runtime_error("no logits: " + Log::text());
      emitted[t] = pending = argmax(logits, vocab);
      if (d.logits != nullptr) {
        copy(cuda, d.logits + size_t(t) * vocab, logits, sizeof(float) * vocab);
      }
    }
    copy(cuda, d.ids, emitted.data(), sizeof(int32_t) * d.n);
  }

  // Rows from `to` on count as never written; the whole sequence for 0.
  void go_back(int32_t to) {
    if (!llama_memory_seq_rm(llama_get_memory(context.get()), 0, to, -1)) {
      throw std::runtime_error("llama.cpp cannot go back to position " + std::to_string(to));
    }
    position = to;
    pending = -1;
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
  } catch (const OpenError& e) {
    error = e.what();
    return e.code;
  } catch (const std::bad_alloc&) {
    error = "memory is short";
    return MKBENCH_UNFIT_ENV;
  } catch (const std::filesystem::filesystem_error& e) {
    error = std::string(e.what()) + "; TMPDIR names the folder of temporary files";
    return MKBENCH_UNFIT_ENV;
  } catch (const std::exception& e) {
    error = e.what();
    return MKBENCH_FAILED;
  }
}

int32_t open_engine(const mkbench_open* args, mkbench_engine** engine) {
  static std::once_flag once;
  std::call_once(once, [] {
    Log::install();
    llama_backend_init();
  });
  Log::forget();
  return guarded(open_error, [&] { *engine = new mkbench_engine(mkbench_own(args)); });
}
void close_engine(mkbench_engine* e) { delete e; }
int32_t reset(mkbench_engine* e) {
  return guarded(e->error, [&] { e->go_back(0); });
}
int32_t prefill(mkbench_engine* e, const int32_t* ids, int32_t n) {
  return guarded(e->error, [&] { e->prefill(ids, n); });
}
int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  return guarded(e->error, [&] { e->decode(mkbench_own(args)); });
}
const char* last_error(mkbench_engine* e) { return (e != nullptr ? e->error : open_error).c_str(); }
const volatile int32_t* progress(mkbench_engine* e) { return &e->running; }
int32_t go_back(mkbench_engine* e, int32_t position) {
  return guarded(e->error, [&] { e->go_back(position); });
}

}  // namespace

const mkbench_engine_abi* mkbench_engine_table(void) {
  // Other types are another engine: another name, and another class where weights are quantised.
  static const std::string weights = suffix_of(kWeights, weight_types(), "-");
  static const std::string name = "llama.cpp" + weights + suffix_of(kKv, kv_types(), "-kv-") +
                                  suffix_of(kFlash, flash_types(), "-flash-");
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi t{};  // what stays 0 or NULL is not offered
    t.size = sizeof t;
    t.version = MKBENCH_ENGINE_ABI_VERSION;
    t.name = name.c_str();
    t.devices = MKBENCH_DEVICE_CPU;
#ifdef LLAMA_ENGINE_CUDA
    t.devices |= MKBENCH_DEVICE_CUDA;
#endif
    t.can = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID;
    t.open = open_engine;
    t.close = close_engine;
    t.reset = reset;
    t.prefill = prefill;
    t.decode = decode;
    t.last_error = last_error;
    t.progress = progress;
    // Matrix products round activations to bf16: on a CPU always, on a GPU in the prefill.
    t.precision = weights.starts_with("-q") ? MKBENCH_PRECISION_LOSSY : MKBENCH_PRECISION_BF16;
    t.rewind = go_back;
    return t;
  }();
  return &table;
}
