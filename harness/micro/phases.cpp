// Times each phase of the plain megakernel alone: how fast its loop reads memory, with one exchange
// between two executions and no other phase.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "harness/micro/bench.h"
#include "harness/micro/phase_kernels.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"
#include "kernels/launch_checks.h"
#include "kernels/phase.h"
#include "kernels/plain/kernel.h"
#include "kernels/plain/params.h"
#include "kernels/plain/scratch.h"
#include "references/base/median.h"

namespace mkbench::micro {
namespace {

constexpr ModelShape kShape = kQwen3_0_6B;
constexpr int kContexts[] = {1024, 4096, 16384};
constexpr int kMostRows = kContexts[std::size(kContexts) - 1] + 1;
// Makes a launch take milliseconds, so that its start hardly counts.
constexpr int64_t kBytesPerLaunch = 8'000'000'000;
constexpr unsigned long long kSpinLimitNs = 500'000'000;

// The number of layers whose data is 4 times the size of L2, so that a loop over them misses it.
int layers_for(Phase phase, int context, int64_t l2_bytes) {
  const int64_t bytes = phase_bytes(phase, kShape, context);
  return static_cast<int>((4 * l2_bytes + bytes - 1) / bytes);
}

// The most elements that any phase at any context reads in a loop over its layers; per_layer()
// gives the elements of one layer.
template <typename PerLayer>
size_t largest(int64_t l2_bytes, PerLayer per_layer) {
  size_t most = 0;
  for (const PhaseInfo& info : kPhases) {
    if (!info.per_layer) continue;
    for (const int context : kContexts) {
      const auto layers = static_cast<size_t>(layers_for(info.phase, context, l2_bytes));
      most = std::max(most, layers * per_layer(info.phase, static_cast<size_t>(context)));
    }
  }
  return most;
}

size_t slab_elements(int64_t l2_bytes) {
  return largest(l2_bytes, [](Phase, size_t) { return layer_layout(kShape).stride; });
}

// Elements of the K cache; the V cache has the same number.
size_t cache_elements(int64_t l2_bytes) {
  return largest(l2_bytes, [](Phase phase, size_t context) {
    return phase == Phase::kAttention ? (context + 1) * static_cast<size_t>(kShape.kv_width()) : 0;
  });
}

// Weights, KV rows and scratch for all phases, filled with numbers that keep every result finite.
class PhaseRig {
 public:
  // Throws Error(kEnvUnfit) when memory does not suffice, Error(kCuda).
  explicit PhaseRig(const DeviceInfo& gpu)
      : gpu_(gpu),
        slabs_(slab_elements(gpu.l2_bytes)),
        embed_(static_cast<size_t>(kShape.embedding_parameters())),
        final_norm_(static_cast<size_t>(kShape.hidden)),
        k_cache_(cache_elements(gpu.l2_bytes)),
        v_cache_(cache_elements(gpu.l2_bytes)),
        rope_(static_cast<size_t>(kMostRows) * static_cast<size_t>(kShape.head_dim / 2)),
        scratch_(plain::ScratchSizes(kShape, gpu.sm_count)),
        control_(2),
        input_(1) {
    for (DeviceBuffer<unsigned short>* b : {&slabs_, &embed_, &final_norm_, &k_cache_, &v_cache_})
      fill_bf16(b->get(), b->size(), 0.05f);
    fill_fp32(reinterpret_cast<float*>(rope_.get()), 2 * rope_.size(), 1.0f);
    for (DeviceBuffer<float>* b : {&scratch_.residual, &scratch_.qkv, &scratch_.attention_max,
                                   &scratch_.attention_acc, &scratch_.swiglu}) {
      fill_fp32(b->get(), b->size(), 1.0f);
    }
    // The kernel divides by these sums: bytes 0x3f set each to 0.747.
    MKBENCH_CUDA(cudaMemset(scratch_.attention_sum.get(), 0x3f, scratch_.attention_sum.bytes()));
    MKBENCH_CUDA(cudaMemset(input_.get(), 0, input_.bytes()));
    MKBENCH_CUDA(cudaDeviceSynchronize());
  }

  // Milliseconds of one launch: `steps` loops over `layers` layers, at `context` KV rows.
  double run_ms(Phase phase, int context, int layers, int steps) {
    plain::LaunchParams p = params(context, layers, steps);
    const LaunchConfig launch{phase_kernel(phase), gpu_.sm_count, plain::threads_per_block(), 0};
    require_co_resident("phase", launch, gpu_.index);
    MKBENCH_CUDA(cudaMemset(control_.get(), 0, control_.bytes()));
    *status_.host() = KernelStatus{-1, 0, 0, 0, 0, 0, 0, 0};
    void* arguments[] = {&p};
    start_.record();
    MKBENCH_CUDA(cudaLaunchCooperativeKernel(
        launch.kernel, dim3(static_cast<unsigned>(launch.blocks)),
        dim3(static_cast<unsigned>(launch.threads)), arguments, 0, nullptr));
    stop_.record();
    MKBENCH_CUDA(cudaDeviceSynchronize());
    const KernelStatus status = *status_.host();
    if (status.raised != 0) {
      throw Error(ErrorKind::kHang, "phase " + std::string(phase_name(phase)) + ": block " +
                                        std::to_string(status.block) + " timed out in layer " +
                                        std::to_string(status.layer));
    }
    return stop_.ms_since(start_);
  }

 private:
  plain::LaunchParams params(int context, int layers, int steps) {
    plain::LaunchParams p{};
    p.layers = slabs_.get();
    p.embed = p.head = embed_.get();
    p.final_norm = final_norm_.get();
    p.k_cache = k_cache_.get();
    p.v_cache = v_cache_.get();
    p.rope = rope_.get();
    p.residual = scratch_.residual.get();
    p.qkv = scratch_.qkv.get();
    p.attention_max = scratch_.attention_max.get();
    p.attention_sum = scratch_.attention_sum.get();
    p.attention_acc = scratch_.attention_acc.get();
    p.swiglu = scratch_.swiglu.get();
    p.best = scratch_.best.get();
    p.inputs = input_.get();
    p.arrivals = control_.get();
    p.abort = control_.get() + 1;
    p.status = status_.device();
    p.layer_count = layers;
    p.vocab = kShape.vocab;
    p.max_context = context + 1;
    p.position = context;
    p.steps = steps;
    p.input_count = 1;
    p.stall_block = -1;
    p.eps = 1e-6f;
    p.spin_limit_ns = kSpinLimitNs;
    p.records = records_.device();
    return p;
  }

  DeviceInfo gpu_;
  DeviceBuffer<unsigned short> slabs_, embed_, final_norm_;
  DeviceBuffer<unsigned short> k_cache_, v_cache_;  // (layers, kv_heads, context + 1, head_dim)
  DeviceBuffer<RopePair> rope_;
  plain::Scratch scratch_;
  DeviceBuffer<unsigned> control_;  // arrivals, abort
  DeviceBuffer<int> input_;
  MappedValue<KernelStatus> status_;
  MappedValue<BlockRecords> records_;
  Event start_, stop_;
};

// One iteration is one execution of the phase, with the exchange before it.
void run_phase(benchmark::State& state, PhaseRig& rig, const DeviceInfo& gpu, Phase phase,
               int context) {
  const int64_t bytes = phase_bytes(phase, kShape, context);
  const bool per_layer = kPhases[static_cast<int>(phase)].per_layer;
  const int layers = per_layer ? layers_for(phase, context, gpu.l2_bytes) : 1;
  const int steps = static_cast<int>(kBytesPerLaunch / (bytes * layers) + 1);
  // Warm-up: a short run has one launch only, which would be a cold start.
  rig.run_ms(phase, context, layers, steps);
  std::vector<double> rates;
  while (state.KeepRunningBatch(int64_t{layers} * steps)) {
    const double ms = rig.run_ms(phase, context, layers, steps);
    state.SetIterationTime(ms * 1e-3);
    rates.push_back(static_cast<double>(bytes * layers * steps) / (ms * 1e6));
  }
  state.counters["GB/s"] = median(rates);
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["layers"] = layers;
}

}  // namespace

void add_phases(Bench& bench) {
  // Made by the first benchmark that runs, and shared by all.
  auto rig = std::make_shared<std::unique_ptr<PhaseRig>>();
  const auto add = [&](Phase phase, int context, const std::string& name) {
    bench.add(name, [&bench, rig, phase, context](benchmark::State& state) {
      if (!*rig) *rig = std::make_unique<PhaseRig>(bench.gpu());
      run_phase(state, **rig, bench.gpu(), phase, context);
    });
  };
  for (const PhaseInfo& info : kPhases) {
    if (phase_kernel(info.phase) == nullptr) continue;  // embed, which is part of qkv
    const std::string name = "phase/" + std::string(info.name);
    if (info.phase != Phase::kAttention) {
      add(info.phase, kContexts[0], name);
      continue;
    }
    for (const int context : kContexts)
      add(info.phase, context, name + "/context:" + std::to_string(context));
  }
}

}  // namespace mkbench::micro
