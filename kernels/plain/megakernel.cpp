#include "kernels/plain/megakernel.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/device_model.h"
#include "kernels/launch_engine.h"
#include "kernels/phase.h"
#include "kernels/plain/graph/phase_graph.h"
#include "kernels/plain/instances/recorded.h"
#include "kernels/plain/instances/soak.h"
#include "kernels/plain/kernel.h"
#include "kernels/plain/kv_checksum.h"
#include "kernels/plain/params.h"
#include "kernels/plain/scratch.h"
#include "kernels/prefill/prefill.h"

namespace mkbench {
namespace {

using plain::LaunchParams;
using plain::Scratch;
using plain::ScratchSizes;

std::string prefix_of(const PlainOptions& options) {
  return std::string(options.launch == PlainLaunch::kOne ? "plain megakernel"
                                                         : plain_name(options.launch));
}

// Upper bound for a single wait; the longest phase takes well under a millisecond.
constexpr double kSpinLimitMs = 2000;
// The grid size assumed by plain_device_bytes(), which does not ask the GPU. No GPU has more
// multiprocessors.
constexpr int kMostBlocks = 256;

// The kernel's index into K or V counts pieces of 16 bytes and has 31 bits.
void check_cache_index(const std::string& prefix, const ModelShape& shape, int max_context) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  const int64_t pieces = int64_t{shape.layers} * shape.kv_width() / 8 * max_context;
  if (pieces <= most) return;
  throw Error(ErrorKind::kBadInput,
              prefix + ": a KV cache of " + std::to_string(max_context) +
                  " positions, wanted at most " +
                  std::to_string(most / (int64_t{shape.layers} * shape.kv_width() / 8)) + " with " +
                  std::to_string(shape.layers) + " layers of " + std::to_string(shape.kv_heads) +
                  " kv heads");
}

void check_layer_shape(const std::string& prefix, const ModelShape& shape) {
  if (plain::kernel_for(shape) != nullptr) return;
  throw Error(ErrorKind::kBadInput,
              prefix + ": no kernel for layers with " + layer_shape_text(shape) +
                  "; compiled in: " + compiled_layer_shapes() +
                  "; to add a shape, add a row to references/model/published.h and build again");
}

// Bytes of K, V and rotary table for one position.
int64_t bytes_per_position(const ModelShape& shape) {
  return shape.kv_bytes_per_position() +
         static_cast<int64_t>(sizeof(RopePair)) * (shape.head_dim / 2);
}

// PlantedFault::kNotResident: blocks per multiprocessor, more than any multiprocessor can hold.
constexpr int kTooMany = 8;

// One block a multiprocessor, or what a test sets.
LaunchConfig launch_config(const ModelShape& shape, const PlainOptions& options) {
  int multiprocessors = 0;
  MKBENCH_CUDA(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, options.gpu));
  const bool too_many = options.fault == PlantedFault::kNotResident;
  if (options.launch != PlainLaunch::kOne)
    return plain::graph_launch(shape, options.blocks > 0 ? options.blocks : multiprocessors);
  return {
      .kernel = options.kernel != nullptr ? options.kernel : plain::kernel_for(shape),
      .blocks = options.blocks > 0 ? options.blocks : multiprocessors * (too_many ? kTooMany : 1),
      .threads = plain::threads_per_block(),
      .shared_bytes = plain::shared_bytes_for(shape)};
}

void require_sm90(const std::string& prefix, int gpu) {
  int major = 0, minor = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  MKBENCH_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
  if (major < 9)
    throw Error(ErrorKind::kUnsupportedDevice,
                prefix + ": GPU " + std::to_string(gpu) + " is of compute capability " +
                    std::to_string(major) + "." + std::to_string(minor) + ", wanted 9.0 or later");
}

class PlainEngine final : public LaunchEngine {
 public:
  PlainEngine(const ModelWeights& weights, const PlainOptions& options, const LaunchConfig& launch)
      : LaunchEngine({.can = plain_capabilities(options.launch),
                      .prefix = prefix_of(options),
                      .gpu = options.gpu,
                      .max_context = options.max_context,
                      .fault = options.fault,
                      .stall_block = options.stall_block},
                     weights.config, launch),
        spin_scale_(options.spin_scale),
        asked_(launch),
        model_(upload_model(weights, options.max_context, options.fault)),
        k_cache_(cache_elements()),
        v_cache_(cache_elements()),
        scratch_(ScratchSizes(weights.config.shape, launch.blocks)),
        prefill_scratch_(weights.config.shape),
        control_(kControlWords) {
    *records_.host() = {};
    if (options.launch != PlainLaunch::kOne)
      graph_.emplace(weights.config.shape, launch.blocks, options.gpu,
                     options.launch == PlainLaunch::kGraphOverlapping);
    poison();
  }

  static int64_t device_bytes(const ModelConfig& model, const PlainOptions& options) {
    const int blocks = options.blocks > 0 ? options.blocks : kMostBlocks;
    return device_model_bytes(model, options.max_context) +
           model.shape.kv_bytes_per_position() * options.max_context +
           ScratchSizes(model.shape, blocks).bytes() + prefill::PrefillScratch::bytes(model.shape) +
           4 * kControlWords + fixed_bytes(model.shape);
  }

  // Launches the soak instance for a `stress` that is not empty, else the kernel of `asked_`.
  std::optional<std::string> stress(const Stress& stress) override {
    const void* soaked = plain::soak_kernel_for(config().shape);
    const bool asked = asked_.kernel == soaked,
               shipped = asked_.kernel == plain::kernel_for(config().shape);
    // No soak instance has this layer shape, or the kernel of `asked_` has faults planted in it.
    if (soaked == nullptr || (!asked && !shipped)) return std::nullopt;
    LaunchConfig launch = asked_;
    if (stress != Stress{}) {
      launch.kernel = soaked;
      require_co_resident(traits().prefix, launch, traits().gpu);
    }
    set_launch(launch);
    stress_ = stress;
    return "";
  }

 private:
  static constexpr int kControlWords = 2;  // arrivals, abort

  // The counter's value at launch: count_from, rounded down to whole exchanges.
  unsigned first_count() const {
    const auto blocks = static_cast<uint64_t>(grid());
    return static_cast<unsigned>(stress_.count_from / blocks * blocks);
  }

  // Reads host memory only, so that it works even if the device does not answer.
  std::optional<Standstill> find_standstill(const KernelStatus& f, bool ended) const override {
    if (f.raised != kRaisedHang) return std::nullopt;
    const int64_t grid = LaunchEngine::grid();
    Standstill s;
    s.grid = static_cast<int>(grid);
    s.resident = resident();
    s.ended = ended;
    const unsigned first = first_count();
    s.wanted = (static_cast<unsigned>(f.expected) - first) / grid;
    s.counted = static_cast<unsigned>(f.seen) - first;
    int64_t waiting = 0;
    for (int b = 0; b < std::min(s.grid, kMostRecords); ++b) {
      const volatile BlockRecord& r = records_.host()->blocks[b];
      BlockPlace place{.block = b, .waiting = r.gave_up != 0};
      if (place.waiting) {
        place.step = r.position - launch_position();
        place.epoch = (static_cast<unsigned>(r.expected) - first) / grid;
        find_wait(place);
        waiting += place.epoch == s.wanted;
      }
      s.blocks.push_back(place);
    }
    // If only waiting blocks have arrived at exchange `wanted`, all others are one epoch behind.
    const bool one_behind = s.counted == (s.wanted - 1) * grid + waiting;
    for (BlockPlace& place : s.blocks) {
      if (!place.waiting && one_behind) place.epoch = s.wanted - 1;
    }
    s.exchange.push_back({"arrivals", s.counted});
    return s;
  }

  // Phase and layer that a block could not begin, from its step and its epoch: a block's epoch counts the
  // phases that it has ended.
  void find_wait(BlockPlace& place) const {
    const int64_t steps = place.step, layers = params_.layer_count;
    const int64_t heads = std::max<int64_t>(0, steps - params_.first_output);
    const int64_t ended = place.epoch - steps * layers * kPhasesPerLayer - heads;
    const PhasePlace at = steps == params_.steps ? PhasePlace{Phase::kEmbed, -1}
                                                 : phase_after(ended, static_cast<int>(layers));
    place.phase = phase_name(at.phase);
    place.layer = at.layer;
  }

  std::optional<RecordedInstance> recorded_instance() const override {
    const void* kernel = plain::recorded_kernel_for(config().shape);
    if (kernel == nullptr || asked_.kernel != plain::kernel_for(config().shape))
      return std::nullopt;
    LaunchConfig launch = asked_;
    launch.kernel = kernel;
    launch.shared_bytes = plain::recorded_shared_bytes_for(config().shape);
    return RecordedInstance{launch, {"block"}};
  }

  void forget_standstill() override { *records_.host() = {}; }

  void reset_words() override {
    MKBENCH_CUDA(cudaMemsetAsync(control_.get(), 0, sizeof(unsigned), side().get()));
  }

  size_t cache_elements() const {
    return static_cast<size_t>(config().shape.kv_bytes_per_position() / 4) *
           static_cast<size_t>(traits().max_context);
  }

  int64_t append_rows(std::span<const int32_t> ids,
                      const std::function<void(int)>& reached) override {
    const auto bits = [](const DeviceBuffer<Bf16>& b) {
      return reinterpret_cast<unsigned short*>(b.get());
    };
    const prefill::PlainKv kv{bits(k_cache_), bits(v_cache_), config().shape.kv_heads,
                              traits().max_context};
    return prefill::prefill_rows(prefill::prefill_model(model_, config(), context_bias()), kv,
                                 prefill_scratch_, ids, position(), reached);
  }

  void poison_scratch() override {
    scratch_.poison();
    prefill_scratch_.poison();
  }

  void poison_rows(int position) override {
    const ModelShape& s = config().shape;
    const size_t row = 2 * static_cast<size_t>(s.head_dim);
    const size_t pitch = row * static_cast<size_t>(traits().max_context);
    const size_t used = row * static_cast<size_t>(position);
    if (used == pitch) return;
    for (DeviceBuffer<Bf16>* cache : {&k_cache_, &v_cache_}) {
      char* from = reinterpret_cast<char*>(cache->get()) + used;
      MKBENCH_CUDA(cudaMemset2D(from, pitch, 0xff, pitch - used,
                                static_cast<size_t>(s.layers) * static_cast<size_t>(s.kv_heads)));
    }
  }

  void zero_rows() override {
    for (DeviceBuffer<Bf16>* cache : {&k_cache_, &v_cache_}) {
      MKBENCH_CUDA(cudaMemset(cache->get(), 0, cache->bytes()));
    }
  }

  uint64_t checksum(int positions) const override {
    const ModelShape& s = config().shape;
    const int slabs = s.layers * s.kv_heads, words = s.head_dim / 4;
    const int rows = traits().max_context;
    const uint64_t k = plain::kv_checksum(k_cache_.get(), slabs, rows, positions, words);
    const uint64_t v = plain::kv_checksum(v_cache_.get(), slabs, rows, positions, words);
    return k + 3 * v;
  }

  std::vector<float> read_row(int layer, int position) const override {
    const ModelShape& s = config().shape;
    std::vector<float> row;
    std::vector<Bf16> head(static_cast<size_t>(s.head_dim));
    for (const DeviceBuffer<Bf16>* cache : {&k_cache_, &v_cache_}) {
      for (int h = 0; h < s.kv_heads; ++h) {
        const size_t at = (static_cast<size_t>(layer * s.kv_heads + h) *
                               static_cast<size_t>(traits().max_context) +
                           static_cast<size_t>(position)) *
                          head.size();
        MKBENCH_CUDA(
            cudaMemcpy(head.data(), cache->get() + at, 2 * head.size(), cudaMemcpyDeviceToHost));
        for (const Bf16 x : head) row.push_back(to_float(x));
      }
    }
    return row;
  }

  int64_t start(void* argument) override {
    if (!graph_) return LaunchEngine::start(argument);
    graph_->launch(params_);
    return params_.steps;
  }

  void* prepare(const Request& request) override {
    MKBENCH_CUDA(cudaMemsetAsync(control_.get(), 0, control_.bytes()));
    const auto bits = [](const DeviceBuffer<Bf16>& b) {
      return reinterpret_cast<unsigned short*>(b.get());
    };
    LaunchParams& p = params_;
    p.first_count = first_count();
    p.delay_seed = static_cast<unsigned>(stress_.delay_seed);
    p.delay_ns = 1000 * static_cast<unsigned>(stress_.delay_us);
    if (p.first_count > 0)
      MKBENCH_CUDA(cudaMemcpyAsync(control_.get(), &p.first_count, 4, cudaMemcpyHostToDevice));
    fill_common(p, request);
    p.layers = bits(model_.layers);
    p.head = bits(model_.head.size() > 0 ? model_.head : model_.embed);
    p.embed = request.vectors != nullptr ? reinterpret_cast<const unsigned short*>(request.vectors)
                                         : bits(model_.embed);
    p.normed = request.normed;
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
    p.arrivals = control_.get();
    p.abort = control_.get() + 1;
    p.records = records_.device();
    p.layer_count = config().shape.layers;
    p.spin_limit_ns = static_cast<unsigned long long>(kSpinLimitMs * 1e6 * spin_scale_);
    return &p;
  }

  const double spin_scale_;
  const LaunchConfig asked_;  // the launch that make_plain()'s options define
  Stress stress_{};
  const DeviceModel model_;
  DeviceBuffer<Bf16> k_cache_, v_cache_;  // (layers, kv_heads, max_context, head_dim)
  Scratch scratch_;
  prefill::PrefillScratch prefill_scratch_;
  DeviceBuffer<unsigned> control_;
  MappedValue<BlockRecords> records_;
  LaunchParams params_{};
  std::optional<plain::PhaseGraph> graph_;  // unset where a launch decodes
};

// A process may hold one such engine at a time, because the fault is a variable of the device code.
void plant_soak_fault(const ModelShape& shape, const PlainOptions& options, LaunchConfig& launch) {
  if (!shape.same_layer_shape(kQwen3_0_6B))
    throw Error(ErrorKind::kBadInput,
                prefix_of(options) + ": this fault is compiled for Qwen3-0.6B's layer shape only");
  launch.kernel = plain::soak_kernel_for(shape);
  const int fault = static_cast<int>(options.fault);
  MKBENCH_CUDA(cudaMemcpyToSymbol(plain::soak_fault_symbol(), &fault, sizeof fault));
}

}  // namespace

EngineCapabilities plain_capabilities(PlainLaunch launch) {
  return {.name = std::string(plain_name(launch)),
          .device = {},
          .one_launch = launch == PlainLaunch::kOne,
          .rewind = true,
          .vectors = true};
}

int64_t plain_device_bytes(const ModelConfig& config, const PlainOptions& options) {
  check_layer_shape(prefix_of(options), config.shape);
  return PlainEngine::device_bytes(config, options);
}

std::string plain_architectures() {
  std::string list = MKBENCH_ARCHITECTURES;
  for (size_t at; (at = list.find("-real")) != std::string::npos;) list.erase(at, 5);
  return list;
}

std::unique_ptr<Engine> make_plain(const ModelWeights& weights, const PlainOptions& options) {
  const std::string prefix = prefix_of(options);
  check_layer_shape(prefix, weights.config.shape);
  check_shapes(weights, prefix);
  check_context(prefix, weights.config, options.max_context);
  check_cache_index(prefix, weights.config.shape, options.max_context);
  use_device(prefix, options.gpu);
  if (options.launch != PlainLaunch::kOne) require_sm90(prefix, options.gpu);
  check_memory(prefix, plain_device_bytes(weights.config, options),
               bytes_per_position(weights.config.shape), options.max_context);
  LaunchConfig launch = launch_config(weights.config.shape, options);
  if (plain::is_soak_fault(options.fault)) plant_soak_fault(weights.config.shape, options, launch);
  if (options.fault != PlantedFault::kNotResident) require_co_resident(prefix, launch, options.gpu);
  return std::make_unique<PlainEngine>(weights, options, launch);
}

}  // namespace mkbench
