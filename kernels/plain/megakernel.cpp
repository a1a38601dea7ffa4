#include "kernels/plain/megakernel.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"
#include "kernels/phase.h"
#include "kernels/plain/device_model.h"
#include "kernels/plain/instances.h"
#include "kernels/plain/kv_checksum.h"
#include "kernels/plain/scratch.h"

namespace mkbench {
namespace {

using plain::LaunchParams;
using plain::Scratch;

constexpr double kSpinLimitMs =
    2000;  // of one wait; the longest phase takes well under a millisecond
constexpr int64_t kSlack =
    64LL << 20;  // context, module and allocator rounding, for the memory check

void check_shape(const ModelShape& shape) {
  if (plain::kernel_for(shape) != nullptr) return;
  const ModelShape& want = kQwen3_0_6B;
  std::string text = "plain megakernel: shape not compiled in (0.6B and tiny are):";
  auto compare = [&](const char* field, int found, int expected) {
    if (found == expected) return;
    text += std::string(" ") + field + " found " + std::to_string(found) + " wanted " +
            std::to_string(expected) + ";";
  };
  compare("hidden_size", shape.hidden, want.hidden);
  compare("intermediate_size", shape.intermediate, want.intermediate);
  compare("num_attention_heads", shape.heads, want.heads);
  compare("num_key_value_heads", shape.kv_heads, want.kv_heads);
  compare("head_dim", shape.head_dim, want.head_dim);
  throw Error(ErrorKind::kBadInput, text + " add the shape to kernels/plain/kernel.cu and rebuild");
}

int usable_device(int gpu) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || gpu < 0 || gpu >= count) {
    throw Error(ErrorKind::kUnsupportedDevice,
                "plain megakernel: no GPU " + std::to_string(gpu) + " (found " +
                    std::to_string(status == cudaSuccess ? count : 0) + ": " +
                    cudaGetErrorString(status) + "); use --device cpu");
  }
  MKBENCH_CUDA(cudaSetDevice(gpu));
  return gpu;
}

class PlainEngine final : public Engine {
 public:
  PlainEngine(const ModelWeights& weights, const PlainOptions& options)
      : config_(weights.config),
        options_(options),
        kernel_(plain::kernel_for(weights.config.shape)),
        blocks_(choose_blocks()),
        model_(plain::upload_model(weights, options.max_context, options.fault)),
        k_cache_(cache_elements()),
        v_cache_(cache_elements()),
        scratch_(weights.config.shape, blocks_),
        control_(2),
        cycles_(2) {
    cudaDeviceProp properties{};
    MKBENCH_CUDA(cudaGetDeviceProperties(&properties, options.gpu));
    device_name_ = "cuda:" + std::to_string(options.gpu) + " " + properties.name;
    *status_.host() = KernelStatus{-1, 0, 0, 0, 0, 0, 0, 0};
    poison();
  }

  EngineCapabilities capabilities() const override {
    return {.name = "plain",
            .device = device_name_,
            .max_context = options_.max_context,
            .logits = true,
            .one_launch = true};
  }

  void reset() override {
    position_ = 0;
    pending_ = -1;
    timed_steps_ = 0;
  }

  void poison() override {
    scratch_.poison();
    if (outputs_.size() > 0) MKBENCH_CUDA(cudaMemset(outputs_.get(), 0xff, outputs_.bytes()));
    const ModelShape& s = config_.shape;
    const size_t row = 2 * static_cast<size_t>(s.head_dim);
    const size_t pitch = row * static_cast<size_t>(options_.max_context);
    const size_t used = row * static_cast<size_t>(position_);
    for (DeviceBuffer<Bf16>* cache : {&k_cache_, &v_cache_}) {
      if (used == pitch) break;
      char* from = reinterpret_cast<char*>(cache->get()) + used;
      MKBENCH_CUDA(cudaMemset2D(from, pitch, 0xff, pitch - used,
                                static_cast<size_t>(s.layers) * static_cast<size_t>(s.kv_heads)));
    }
    // Not left in the queue: the next decode is timed.
    MKBENCH_CUDA(cudaDeviceSynchronize());
  }

  void prefill(std::span<const int32_t> ids) override {
    if (ids.empty()) throw Error(ErrorKind::kBadInput, "prefill: no ids");
    for (const int32_t id : ids) check_id(id);
    std::vector<int32_t> inputs;
    if (pending_ >= 0) inputs.push_back(pending_);
    inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
    check_room(static_cast<int64_t>(inputs.size()));
    const int steps = static_cast<int>(inputs.size());
    if (steps > 0) launch(inputs, steps, steps, nullptr);
    pending_ = ids.back();
  }

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    if (n < 1)
      throw Error(ErrorKind::kBadInput,
                  "decode: " + std::to_string(n) + " steps, wanted 1 or more");
    if (pending_ < 0)
      throw Error(ErrorKind::kBadInput, "decode: no pending id, call prefill first");
    check_room(n);
    std::vector<int32_t> inputs{pending_};
    for (int t = 1; forced != nullptr && t < n; ++t) {
      check_id(forced[t]);
      inputs.push_back(forced[t]);
    }
    launch(inputs, n, 0, logits_out);
    std::vector<int32_t> ids(static_cast<size_t>(n));
    MKBENCH_CUDA(cudaMemcpy(ids.data(), outputs_.get(), 4 * ids.size(), cudaMemcpyDeviceToHost));
    pending_ = ids.back();
    return ids;
  }

  void set_pending(int32_t id) override {
    check_id(id);
    pending_ = id;
  }

  Snapshot save() override { return {position_, pending_, checksum(position_)}; }

  void restore(const Snapshot& s) override {
    if (s.position > position_ || s.position < 0) {
      throw Error(ErrorKind::kBadInput, "restore: position " + std::to_string(s.position) +
                                            " is not in [0, " + std::to_string(position_) + "]");
    }
    if (checksum(s.position) != s.kv_checksum) {
      throw Error(ErrorKind::kIntegrity, "restore: KV rows below position " +
                                             std::to_string(s.position) + " were modified");
    }
    position_ = s.position;
    pending_ = s.pending;
    poison();
  }

  int position() const override { return position_; }
  int64_t launch_count() const override { return launches_; }
  // Fetched when asked for, not on the clock of decode().
  DecodeTimes last_times() const override {
    DecodeTimes times;
    if (timed_steps_ == 0) return times;
    std::vector<unsigned long long> ns(static_cast<size_t>(timed_steps_) + 1);
    unsigned long long cycles[2];
    MKBENCH_CUDA(cudaMemcpy(ns.data(), token_ns_.get(), 8 * ns.size(), cudaMemcpyDeviceToHost));
    MKBENCH_CUDA(cudaMemcpy(cycles, cycles_.get(), sizeof(cycles), cudaMemcpyDeviceToHost));
    times.host_ms = host_ms_;
    times.event_ms = stop_.ms_since(start_);
    const double total_ns = static_cast<double>(ns.back() - ns.front());
    times.device_ms = total_ns * 1e-6;
    times.sm_ghz = total_ns > 0 ? static_cast<double>(cycles[1] - cycles[0]) / total_ns : 0;
    for (size_t t = 1; t < ns.size(); ++t) {
      times.per_token_ms.push_back(static_cast<double>(ns[t] - ns[t - 1]) * 1e-6);
    }
    return times;
  }

  Progress progress() const override {
    const volatile KernelStatus* status = status_.host();
    return {status->progress_position, -1, {}};
  }

  std::optional<std::vector<float>> hidden(int layer) override {
    if (layer < 0 || layer >= config_.shape.layers || timed_steps_ == 0) return std::nullopt;
    std::vector<float> state(static_cast<size_t>(config_.shape.hidden));
    MKBENCH_CUDA(cudaMemcpy(state.data(),
                            scratch_.hidden.get() + static_cast<size_t>(layer) * state.size(),
                            4 * state.size(), cudaMemcpyDeviceToHost));
    return state;
  }

  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    const ModelShape& s = config_.shape;
    if (layer < 0 || layer >= s.layers || position < 0 || position >= position_)
      return std::nullopt;
    std::vector<float> row;
    std::vector<Bf16> head(static_cast<size_t>(s.head_dim));
    for (const DeviceBuffer<Bf16>* cache : {&k_cache_, &v_cache_}) {
      for (int h = 0; h < s.kv_heads; ++h) {
        const size_t at = (static_cast<size_t>(layer * s.kv_heads + h) *
                               static_cast<size_t>(options_.max_context) +
                           static_cast<size_t>(position)) *
                          head.size();
        MKBENCH_CUDA(
            cudaMemcpy(head.data(), cache->get() + at, 2 * head.size(), cudaMemcpyDeviceToHost));
        for (const Bf16 x : head) row.push_back(to_float(x));
      }
    }
    return row;
  }

 private:
  size_t cache_elements() const {
    return static_cast<size_t>(config_.shape.kv_bytes_per_position() / 4) *
           static_cast<size_t>(options_.max_context);
  }

  // One block a multiprocessor unless a test asks for fewer; more than fit at once would wait for
  // each other for ever.
  int choose_blocks() const {
    int multiprocessors = 0, per_multiprocessor = 0, cooperative = 0;
    MKBENCH_CUDA(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, options_.gpu));
    MKBENCH_CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, options_.gpu));
    cudaFuncAttributes
        attributes{};  // loads the kernel now: a lazy load would fall into the first timed launch
    MKBENCH_CUDA(cudaFuncGetAttributes(&attributes, kernel_));
    MKBENCH_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel_,
                                                               plain::threads_per_block(), 0));
    const int resident = multiprocessors * per_multiprocessor;
    const int blocks = options_.blocks > 0 ? options_.blocks : multiprocessors;
    if (cooperative == 0 || blocks > resident) {
      throw Error(ErrorKind::kUnsupportedDevice,
                  "plain megakernel: " + std::to_string(blocks) + " blocks of " +
                      std::to_string(plain::threads_per_block()) +
                      " threads cannot be co-resident (" + std::to_string(resident) +
                      " fit, cooperative launch " +
                      (cooperative != 0 ? "supported" : "not supported") + ")");
    }
    return blocks;
  }

  void check_id(int32_t id) const {
    if (id >= 0 && id < config_.shape.vocab) return;
    throw Error(ErrorKind::kBadInput, "token id " + std::to_string(id) + " is not in [0, " +
                                          std::to_string(config_.shape.vocab) + ")");
  }

  void check_room(int64_t steps) const {
    if (position_ + steps <= options_.max_context) return;
    throw Error(ErrorKind::kBadInput, "context: " + std::to_string(position_) + " rows + " +
                                          std::to_string(steps) + " steps > " +
                                          std::to_string(options_.max_context) + " positions");
  }

  uint64_t checksum(int positions) const {
    const ModelShape& s = config_.shape;
    const int slabs = s.layers * s.kv_heads, words = s.head_dim / 4;
    const uint64_t k =
        plain::kv_checksum(k_cache_.get(), slabs, options_.max_context, positions, words);
    const uint64_t v =
        plain::kv_checksum(v_cache_.get(), slabs, options_.max_context, positions, words);
    return k + 3 * v;
  }

  LaunchParams params(int steps, int first_output, int input_count, float* logits) {
    auto bits = [](const DeviceBuffer<Bf16>& b) {
      return reinterpret_cast<unsigned short*>(b.get());
    };
    LaunchParams p{};
    p.layers = bits(model_.layers);
    p.embed = bits(model_.embed);
    p.head = model_.head.size() > 0 ? bits(model_.head) : p.embed;
    p.final_norm = bits(model_.final_norm);
    p.k_cache = bits(k_cache_);
    p.v_cache = bits(v_cache_);
    p.rope = model_.rope.get();
    p.residual = scratch_.residual.get();
    p.qkv = scratch_.qkv.get();
    p.attention_max = scratch_.attention_max.get();
    p.attention_sum = scratch_.attention_sum.get();
    p.attention_acc = scratch_.attention_acc.get();
    p.swiglu = scratch_.swiglu.get();
    p.best = scratch_.best.get();
    p.inputs = inputs_.get();
    p.outputs = outputs_.get();
    p.logits = logits;
    p.hidden = scratch_.hidden.get();
    p.token_ns = token_ns_.get();
    p.cycles = cycles_.get();
    p.arrivals = control_.get();
    p.abort = control_.get() + 1;
    p.status = status_.device();
    p.layer_count = config_.shape.layers;
    p.vocab = config_.shape.vocab;
    p.max_context = options_.max_context;
    p.position = position_;
    p.steps = steps;
    p.input_count = input_count;
    p.first_output = first_output;
    p.context_bias = options_.fault == PlantedFault::kCacheLength ? -1 : 0;
    p.stall_block = options_.stall_block;
    p.eps = static_cast<float>(config_.rms_norm_eps);
    p.spin_limit_ns = static_cast<unsigned long long>(kSpinLimitMs * 1e6 * options_.spin_scale);
    return p;
  }

  // Runs `steps` steps from position_ in one launch; the clock covers what a user waits for: ids
  // in, kernel, ids out.
  void launch(const std::vector<int32_t>& inputs, int steps, int first_output, float* logits_out) {
    const size_t outputs = static_cast<size_t>(steps - first_output);
    const size_t vocab = static_cast<size_t>(config_.shape.vocab);
    inputs_.reserve(inputs.size());
    outputs_.reserve(outputs);
    token_ns_.reserve(static_cast<size_t>(steps) + 1);
    if (logits_out != nullptr) {
      logits_.reserve(outputs * vocab);
      MKBENCH_CUDA(cudaMemset(logits_.get(), 0xff, 4 * outputs * vocab));
    }
    timed_steps_ = 0;
    status_.host()->progress_position = -1;
    const auto host_start = std::chrono::steady_clock::now();
    MKBENCH_CUDA(
        cudaMemcpyAsync(inputs_.get(), inputs.data(), 4 * inputs.size(), cudaMemcpyHostToDevice));
    MKBENCH_CUDA(cudaMemsetAsync(outputs_.get(), 0xff, outputs_.bytes()));
    MKBENCH_CUDA(cudaMemsetAsync(control_.get(), 0, control_.bytes()));
    LaunchParams p = params(steps, first_output, static_cast<int>(inputs.size()),
                            logits_out != nullptr ? logits_.get() : nullptr);
    void* arguments[] = {&p};
    start_.record();
    MKBENCH_CUDA(cudaLaunchCooperativeKernel(
        kernel_, dim3(static_cast<unsigned>(blocks_)),
        dim3(static_cast<unsigned>(plain::threads_per_block())), arguments, 0, nullptr));
    stop_.record();
    MKBENCH_CUDA(cudaDeviceSynchronize());
    const auto host_stop = std::chrono::steady_clock::now();
    ++launches_;
    check_fault();
    position_ += steps;
    host_ms_ = std::chrono::duration<double, std::milli>(host_stop - host_start).count();
    timed_steps_ = steps;
    if (logits_out != nullptr) {
      MKBENCH_CUDA(
          cudaMemcpy(logits_out, logits_.get(), 4 * outputs * vocab, cudaMemcpyDeviceToHost));
    }
  }

  void check_fault() {
    KernelStatus* status = status_.host();
    if (status->raised == 0) return;
    const KernelStatus f = *status;
    status->raised = 0;
    reset();
    throw Error(
        ErrorKind::kHang,
        "plain megakernel: block " + std::to_string(f.block) + " waited in vain before phase " +
            std::string(phase_name(static_cast<Phase>(f.phase))) + ", layer " +
            std::to_string(f.layer) + ", position " + std::to_string(f.position) + ": saw " +
            std::to_string(f.seen) + " arrivals, expected " + std::to_string(f.expected));
  }

  ModelConfig config_;
  PlainOptions options_;
  const void* kernel_;
  int blocks_;
  plain::DeviceModel model_;
  DeviceBuffer<Bf16> k_cache_, v_cache_;  // (layers, kv_heads, max_context, head_dim)
  Scratch scratch_;
  DeviceBuffer<unsigned> control_;  // arrivals, abort
  DeviceBuffer<unsigned long long> cycles_, token_ns_;
  DeviceBuffer<int> inputs_, outputs_;
  DeviceBuffer<float> logits_;
  MappedValue<KernelStatus> status_;
  Event start_, stop_;
  std::string device_name_;
  double host_ms_ = 0;   // of the last launch
  int timed_steps_ = 0;  // of the last launch, whose times and hidden states are on the device
  int position_ = 0;
  int32_t pending_ = -1;
  int64_t launches_ = 0;
};

}  // namespace

int64_t plain_device_bytes(const ModelConfig& config, const PlainOptions& options) {
  return plain::device_model_bytes(config, options.max_context) +
         config.shape.kv_bytes_per_position() * options.max_context + Scratch::bytes(config.shape);
}

std::string plain_architectures() {
  std::string list = MKBENCH_ARCHITECTURES;
  for (size_t at; (at = list.find("-real")) != std::string::npos;) list.erase(at, 5);
  return list;
}

std::unique_ptr<Engine> make_plain(const ModelWeights& weights, const PlainOptions& options) {
  check_shape(weights.config.shape);
  if (options.max_context < 1 || options.max_context > weights.config.max_positions) {
    throw Error(ErrorKind::kBadInput, "plain megakernel: context of " +
                                          std::to_string(options.max_context) +
                                          " positions, wanted 1 to max_position_embeddings " +
                                          std::to_string(weights.config.max_positions));
  }
  usable_device(options.gpu);
  size_t free_bytes = 0, total_bytes = 0;
  MKBENCH_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int64_t needed = plain_device_bytes(weights.config, options) + kSlack;
  if (needed > static_cast<int64_t>(free_bytes)) {
    throw Error(ErrorKind::kEnvUnfit, "plain megakernel: needs " + std::to_string(needed >> 20) +
                                          " MiB of GPU memory, free " +
                                          std::to_string(free_bytes >> 20) + " MiB");
  }
  return std::make_unique<PlainEngine>(weights, options);
}

}  // namespace mkbench
