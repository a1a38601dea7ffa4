// An audit of an engine with the oracle's arithmetic, on a random model; the truth is the oracle too.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/flow/audit.h"
#include "references/oracle.h"
#include "references/synthetic.h"
#include "references/weight_edit.h"
#include "tests/support/catch2.h"
#include "tests/support/random_model.h"
#include "tests/support/scripted_services.h"

namespace mkbench::testing {

inline constexpr ModelShape kSmall{.hidden = 128,
                                   .intermediate = 192,
                                   .layers = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .vocab = 97};

// A random model: "tied" or "untied", or "wandering": tied, and it does not go on with its own input, or
// "attentive": untied, and attention decides its ids.
inline const ModelWeights& model(const std::string& name) {
  static const ModelWeights tied = random_model(kSmall, {.tied = true}),
                            untied = random_model(kSmall, {.tied = false});
  static const ModelWeights wandering = [] {
    WeightEdit edit(tied);
    edit.each_value(edit.weights().final_norm, [](float x) { return -x; });
    return edit.weights();
  }();
  static const ModelWeights attentive = [] {
    WeightEdit edit(untied);
    for (LayerWeights& layer : edit.weights().layers) {
      edit.each_value(layer.o_proj, [](float x) { return 16 * x; });
      edit.each_value(layer.q_norm, [](float x) { return 4 * x; });
    }
    return edit.weights();
  }();
  if (name == "attentive") return attentive;
  return name == "tied" ? tied : name == "untied" ? untied : wandering;
}

inline std::function<uint64_t(uint64_t)> sequence(uint64_t seed) {
  return [state = splitmix64(seed)](uint64_t bound) mutable { return splitmix64(state++) % bound; };
}

// Gives the engine the sound values of some weights, whatever is changed in them: it skips them.
using Skip = std::function<bool(const NamedTensor& tensor, int row, int column)>;

inline ModelWeights skipping(const ModelWeights& given, const ModelWeights& sound,
                             const Skip& skip) {
  WeightEdit edit(given);
  ModelWeights& w = edit.weights();
  const bool tied = w.config.tie_word_embeddings;
  if (tied) edit.untie();  // the head is skipped by itself
  for (const NamedTensor& t : tensor_table(w.config)) {
    Matrix& m = tensor_of(w, t);
    const Matrix& from = tensor_of(sound, t);
    std::vector<Bf16>& values = edit.own(m);
    for (int r = 0; r < t.rows; ++r) {
      for (int c = 0; c < t.cols; ++c) {
        if (skip(t, r, c)) values[static_cast<size_t>(r) * t.cols + c] = from.row(r)[c];
      }
    }
  }
  return w;
}

// What an engine shows besides its ids.
enum class Shows { kIds, kRows, kChecksum };

// The truth's own arithmetic as an engine.
class OracleEngine : public Engine {
 public:
  OracleEngine(const ModelWeights& weights, Shows shows, bool deterministic)
      : oracle_(weights, 1),
        shape_(weights.config.shape),
        shows_(shows),
        deterministic_(deterministic) {}

  EngineCapabilities capabilities() const override {
    return {.name = "oracle",
            .device = "cpu",
            .max_context = 512,
            .snapshots = shows_ == Shows::kChecksum,
            .late_id = shows_ != Shows::kIds,
            .deterministic = deterministic_};
  }
  void reset() override { oracle_.reset(); }
  void poison() override {}
  void prefill(std::span<const int32_t> ids) override {
    for (const int32_t id : ids.first(forgets ? 0 : ids.size() - 1)) oracle_.step(id, false);
    pending_ = ids.back();
  }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits) override {
    if (fails) throw Error(ErrorKind::kRuntime, "it gives up");
    std::vector<int32_t> ids;
    for (int t = 0; t < n; ++t) {
      const std::vector<float> row =
          oracle_.step(t > 0 && forced != nullptr ? forced[t] : pending_);
      if (logits != nullptr) std::copy(row.begin(), row.end(), logits + int64_t{t} * shape_.vocab);
      ids.push_back(pending_ = argmax_lowest(row));
    }
    if (offset > 0) ids.back() = (ids.back() + offset) % shape_.vocab;
    return ids;
  }
  void set_pending(int32_t id) override { pending_ = id; }
  Snapshot save() override {
    uint64_t sum = 1;
    for (int layer = 0; layer < shape_.layers; ++layer) {
      for (int row = 0; row < oracle_.position(); ++row) {
        for (const float x : oracle_.kv_row(layer, row))
          sum = splitmix64(sum ^ std::bit_cast<uint32_t>(x));
      }
    }
    return {oracle_.position(), pending_, sum};
  }
  void restore(const Snapshot&) override {}
  int position() const override { return oracle_.position(); }
  int64_t launch_count() const override { return 1; }
  DecodeTimes last_times() const override { return {}; }
  Progress progress() const override { return {}; }
  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    if (shows_ != Shows::kRows) return std::nullopt;
    return oracle_.kv_row(layer, position);
  }

  int offset = 0;  // added to the last id
  bool fails = false, forgets = false;

 private:
  Oracle oracle_;
  const ModelShape shape_;
  const Shows shows_;
  const bool deterministic_;
  int32_t pending_ = -1;
};

struct Bench {
  std::string name = "tied";
  Skip skip;
  Shows shows = Shows::kChecksum;
  bool deterministic = true, fails = false;
  bool truth_skips = false;   // the truth leaves out what the engine leaves out
  bool keeps_rope = false;    // the engine rotates as the sound model does, whatever its model says
  bool forgets = false;       // its prefill takes the last id alone
  double own_theta = 0;       // the engine rotates by this theta; 0: by its model's
  bool one_theta = false;     // the engine opens on the sound model's theta alone
  bool opens_differ = false;  // every opened engine answers differently
  int opened = 0, truths = 0, most_context = 0;
  AuditPlan plan;
  std::function<ByteCounts(const std::string&, int)> count_bytes;
  uint64_t seed = 1;

  Bench() {
    plan.job.n_gen = 16;
    plan.tiles = 40;
  }

  // What audit_candidates() gets, and what it has told.
  bool load_fails = false;
  double seconds_a_look = 0;  // that pass between two looks at the clock
  std::vector<int> tokens;    // of the decodes that were counted
  Contestant kernel{{.name = "kernel", .asked = "kernel", .candidate = true}};
  std::string line, given;  // its line in the report, and its verdict

  EngineAudit run() {
    const ModelWeights& sound = model(name);
    return with_services(sound, [&](const CaseServices& services) {
      return audit_engine(plan, kernel, services, [](const std::string&, int, int) {});
    });
  }

  void run_as_candidate() {
    with_services(model(name), [&](const CaseServices& services) {
      EventSink sink([&](const CaseEvent& event) {
        if (const auto* audited = std::get_if<EngineAudited>(&event)) line = audited->text;
        if (const auto* verdict = std::get_if<VerdictGiven>(&event))
          given = fmt::format("{} {}", verdict_name(verdict->verdict), verdict->reason);
      });
      ProgressWatch watch(sink);
      audit_candidates(plan.job, services, {&kernel}, watch, sink);
      return EngineAudit{};
    });
  }

  EngineAudit with_services(const ModelWeights& sound,
                            const std::function<EngineAudit(const CaseServices&)>& work) {
    ScriptedServices services;
    services.now = [this, now = 0.0]() mutable { return now += seconds_a_look; };
    services.random = sequence(seed);
    services.count_bytes = [&](const std::string& engine, int n) {
      tokens.push_back(n);
      return count_bytes(engine, n);
    };
    services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
      const bool truth = request.name == "eager-fp32";
      ++(truth ? truths : opened);
      most_context = std::max(most_context, request.max_context);
      const bool skips = skip && (!truth || truth_skips);
      WeightEdit own(skips ? skipping(weights, sound, skip) : weights);
      if (keeps_rope && (!truth || truth_skips)) own.weights().config.rope = sound.config.rope;
      if (own_theta > 0 && !truth) own.weights().config.rope.theta = own_theta;
      if (one_theta && !truth && weights.config.rope.theta != sound.config.rope.theta)
        throw Error(ErrorKind::kBadInput, "another theta");
      auto engine = std::make_unique<OracleEngine>(own.weights(), shows, deterministic);
      engine->forgets = forgets && (!truth || truth_skips);
      if (opens_differ) engine->offset = opened;
      engine->fails = fails;
      return engine;
    };
    plan.job.model = {.row = find_model(name), .name = name};
    services.config = [&](const std::string&) { return sound.config; };
    services.load = [&](const std::string&, int) {
      if (load_fails) throw Error(ErrorKind::kEnvUnfit, "no memory");
      return sound;
    };
    return work(services);
  }
};

inline std::string reason_of(const EngineAudit& audit) {
  return audit.reasons.empty() ? "" : audit.reasons.front();
}

}  // namespace mkbench::testing
