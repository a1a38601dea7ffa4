// Times the ring megakernel's layers without its LM head, and the LM head without the layers.
// Models have Qwen3-0.6B's shape and random weights; to time the layers, the vocabulary shrinks to
// one row per block, and to time the LM head, two layers remain. The layers' time contains the end
// of a token: the small LM head, the choice of the token and its embedding.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>

#include "harness/micro/bench.h"
#include "kernels/phase.h"
#include "kernels/ring/megakernel.h"
#include "references/base/error.h"
#include "references/base/median.h"

namespace mkbench::micro {

ModelWeights random_weights(int layers, int vocab) {
  ModelWeights w;
  w.name = "random";
  w.config.shape = kQwen3_0_6B;
  w.config.shape.layers = layers;
  w.config.shape.vocab = vocab;
  w.config.rope.theta = 1e6;
  w.config.rms_norm_eps = 1e-6;
  w.config.tie_word_embeddings = true;
  w.config.max_positions = 40960;
  w.layers.resize(static_cast<size_t>(layers));
  const std::vector<NamedTensor> table = tensor_table(w.config);
  size_t most = 0;
  for (const NamedTensor& t : table)
    most = std::max(most, static_cast<size_t>(t.rows) * static_cast<size_t>(t.cols));
  auto values = std::make_shared<std::vector<Bf16>>(most);
  uint32_t x = 1;
  for (Bf16& value : *values) {
    x = x * 1664525u + 1013904223u;
    value = to_bf16(static_cast<float>(static_cast<int32_t>(x)) * 0x1p-36f);  // within +-1/32
  }
  for (const NamedTensor& t : table) tensor_of(w, t) = {values->data(), t.rows, t.cols};
  w.owner = values;
  return w;
}

namespace {

constexpr int kContexts[] = {0, 512, 4096};
constexpr int kTokens = 64;                      // in one launch
constexpr int kSmallVocabulary = ring::kBlocks;  // one row of the LM head for each block
constexpr int kLeastLayers = 2;

struct NamedAblation {
  RingAblation ablation;
  const char* suffix;
};
constexpr NamedAblation kAblations[] = {{RingAblation::kNone, ""},
                                        {RingAblation::kNoWaits, "/no_waits"},
                                        {RingAblation::kNoLoads, "/no_loads"}};

std::unique_ptr<Engine> make_engine(int layers, int vocab) {
  return make_ring(random_weights(layers, vocab),
                   {.max_context = kContexts[std::size(kContexts) - 1] + kTokens});
}

// Milliseconds of one launch of kTokens steps from `context` rows on.
double launch_ms(Engine& engine, int context) {
  if (!engine.skip_to(context))
    throw Error(ErrorKind::kRuntime, "ring: cannot skip to a depth without computing its KV rows");
  engine.decode(kTokens);
  const DecodeTimes times = engine.last_times();
  if (times.per_token_ms.size() != kTokens)  // a NaN logit ends a launch
    throw Error(ErrorKind::kIntegrity, "ring: the launch ended before its last step");
  return times.event_ms;
}

// Bytes that kTokens steps from `context` rows on must read in `layers` layers.
int64_t layer_bytes(int context, int layers) {
  int64_t bytes = 0;
  for (int t = 0; t < kTokens; ++t) {
    for (const PhaseInfo& info : kPhases)
      if (info.per_layer) bytes += layers * phase_bytes(info.phase, kQwen3_0_6B, context + t);
  }
  return bytes;
}

void run_layers(benchmark::State& state, Engine& engine, RingAblation ablation, int context) {
  retune_ring(engine, {.ablation = ablation});
  launch_ms(engine, context);
  std::vector<double> ms;
  while (state.KeepRunningBatch(kTokens)) {
    ms.push_back(launch_ms(engine, context));
    state.SetIterationTime(ms.back() * 1e-3);
  }
  const int layers = kQwen3_0_6B.layers;
  state.counters["us/layer"] = 1e3 * median(ms) / (kTokens * layers);
  if (ablation != RingAblation::kNoLoads) {
    state.counters["GB/s"] = static_cast<double>(layer_bytes(context, layers)) / (1e6 * median(ms));
  }
}

// Times the difference between two models that differ only in their LM head, launched in turn.
void run_head(benchmark::State& state, Engine& with, Engine& without) {
  launch_ms(with, 0);
  launch_ms(without, 0);
  std::vector<double> ms;
  while (state.KeepRunningBatch(kTokens)) {
    ms.push_back(launch_ms(with, 0) - launch_ms(without, 0));
    state.SetIterationTime(ms.back() * 1e-3);
  }
  ModelShape small = kQwen3_0_6B;
  small.vocab = kSmallVocabulary;
  const int64_t bytes = kTokens * (phase_bytes(Phase::kLmHead, kQwen3_0_6B, 0) -
                                   phase_bytes(Phase::kLmHead, small, 0));
  state.counters["GB/s"] = static_cast<double>(bytes) / (1e6 * median(ms));
}

// Each engine is made by the first benchmark that needs it.
struct Engines {
  std::unique_ptr<Engine> layers, head, neither;
};

}  // namespace

void add_ring(Bench& bench) {
  auto engines = std::make_shared<Engines>();
  const auto make_once = [](std::unique_ptr<Engine>& engine, int layers, int vocab) -> Engine& {
    if (!engine) engine = make_engine(layers, vocab);
    return *engine;
  };
  for (const int context : kContexts) {
    for (const NamedAblation& a : kAblations) {
      const std::string name = "ring/layers/context:" + std::to_string(context) + a.suffix;
      bench.add(name, [=](benchmark::State& state) {
        run_layers(state, make_once(engines->layers, kQwen3_0_6B.layers, kSmallVocabulary),
                   a.ablation, context);
      });
    }
  }
  bench.add("ring/lm_head", [=](benchmark::State& state) {
    run_head(state, make_once(engines->head, kLeastLayers, kQwen3_0_6B.vocab),
             make_once(engines->neither, kLeastLayers, kSmallVocabulary));
  });
}

}  // namespace mkbench::micro
