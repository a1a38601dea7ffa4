// Runs one case with scripted engines in place of all real ones, in this process.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/archive/collector.h"
#include "harness/flow/case_flow.h"
#include "harness/flow/state_receipt.h"
#include "harness/judge/conclude.h"
#include "harness/report/report.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/scripted_engine.h"
#include "tests/support/scripted_services.h"

namespace mkbench::testing {

inline constexpr int kVocab = 16, kSteps = 12;

// A model whose files nobody reads.
inline Model named(const std::string& name) { return {.row = find_model(name), .name = name}; }

// A truth with margins far above D, so that every step is decided.
inline GreedyReference scripted_reference() {
  GreedyReference reference;
  reference.path = "scripted/reference.json";
  reference.sha256 = "r1";
  reference.weights_sha256 = "w1";
  reference.pairwise_d = 0.1;
  ReferencePrompt prompt;
  prompt.name = "one";
  prompt.set = "strict";
  prompt.ids = {3};
  int32_t id = 3;
  for (int t = 0; t < kSteps; ++t) {
    ReferenceStep step;
    step.position = t;
    step.token = id = scripted_token(id, t, kVocab);
    step.top_ids = {id, (id + 1) % kVocab};
    step.top_logits = {10, 1};
    step.margin = 9;
    step.max_abs = 10;
    step.decided = true;
    step.baseline_error_norm = 1;
    prompt.steps.push_back(step);
  }
  reference.prompts = {prompt};
  return reference;
}

// One case with scripted engines in place of all real ones, and the events that the case sent. Its
// clock stands still but for a microsecond a reading and for what scripts let pass.
struct Bench {
  double now_s = 0;
  std::map<std::string, Script> scripts;
  std::vector<GreedyReference> references = {scripted_reference()};
  CaseJob job;
  ScriptedServices services;
  std::vector<CaseEvent> messages;
  bool has_ablations = false;
  std::vector<Ablation> ablations;  // in the order in which they were set
  int open = 0, most_open = 0;      // engines
  std::map<std::string, int> made;  // by name
  int samples_seen = 0, stop_after_samples = -1;
  int turns = 0;
  int timed_calls = 0, ended_calls = 0;  // ended: the turn ended right after the timed calls
  int loose_calls = 0;                   // timed calls after an untimed one of their turn
  int calls_in_turn = -1;  // calls of engines since the last turn began; -1: it has ended
  int timed_in_turn = 0;
  // Draws follow a sequence; after the first block no sample gets a state receipt.
  uint64_t draws = 0, receipt_draw = 1;

  Bench() {
    job.model = named("scripted");
    job.engines = {{.name = "eager", .asked = "eager", .judges = true, .yardstick = true},
                   {.name = "kernel", .asked = "kernel", .candidate = true}};
    job.n_gen = 8;
    job.blocks = job.max_blocks = 3;
    job.ids = {3};
    services.now = [this] { return now_s += 1e-6; };
    services.config = [](const std::string&) {
      ModelConfig config;
      config.shape.vocab = kVocab;
      config.max_positions = 256;
      return config;
    };
    services.load = [this](const std::string&, int) {
      ModelWeights weights;
      weights.name = "scripted";
      weights.sha256 = "w1";
      weights.config = services.config("");
      return weights;
    };
    services.references = [this](const std::string&) { return references; };
    services.make_engine = [this](const EngineRequest& request, const ModelWeights&) {
      Script script = scripts[request.name];
      script.name = request.name;
      script.called = [this](const char*) {
        if (calls_in_turn >= 0) ++calls_in_turn;
      };
      struct Counted final : ScriptedEngine {
        Counted(const Script& script, Bench& its_bench) : ScriptedEngine(script), bench(its_bench) {
          bench.most_open = std::max(bench.most_open, ++bench.open);
        }
        ~Counted() override { --bench.open; }
        Bench& bench;
      };
      ++made[request.name];
      return std::make_unique<Counted>(script, *this);
    };
    services.ablate = [this](Engine& engine, Ablation ablation) {
      const std::string name = engine.capabilities().name;
      ablations.push_back(ablation);
      return name == "kernel" && has_ablations ? "" : name + " has no ablations";
    };
    services.bytes = [](const EngineRequest&, const ModelConfig&) { return int64_t{1000}; };
    services.free_bytes = [] { return int64_t{1} << 30; };
    services.facts = [](const Engine& engine) {
      const EngineCapabilities can = engine.capabilities();
      return EngineFacts{.resolved_name = can.name,
                         .device = can.device,
                         .settings = can.name == "eager" ? "pinned=1" : "",
                         .process = {}};
    };
    services.take_turn = [this](Engine&) {
      ++turns;
      calls_in_turn = timed_in_turn = 0;
    };
    services.end_turn = [this](Engine&) {
      if (timed_in_turn > 0 && calls_in_turn == timed_in_turn) ended_calls += timed_in_turn;
      calls_in_turn = -1;
      timed_in_turn = 0;
      return std::string();
    };
    services.timed = [this](Engine&, const std::function<void()>& call) {
      ++timed_calls;
      if (calls_in_turn != timed_in_turn) ++loose_calls;
      ++timed_in_turn;
      return time_call(services.now, call);
    };
    services.random = [this](uint64_t bound) {
      return bound == kReceiptShare ? receipt_draw : splitmix64(++draws) % bound;
    };
    services.stop = [this] {
      return stop_after_samples >= 0 && samples_seen >= stop_after_samples;
    };
  }

  void pass_ms(double ms) { now_s += ms / 1e3; }

  // Decodes for so long and answers nonsense, as a ceiling does.
  void add_ceiling(double ms = 6) {
    job.no_ceiling.clear();
    Script& script = scripts[kCeilingName];
    script.one_launch = true;
    script.late_id = script.rewinds = true;
    script.snapshots = script.logits = false;
    script.wrong = [](int, int) { return true; };
    script.before = [this, ms](int) { pass_ms(ms); };
  }

  // Runs the case and returns its aggregated report.
  CaseReport run() {
    CaseCollector collector(job);
    EventSink sink([&](const CaseEvent& message) {
      messages.push_back(message);
      if (std::holds_alternative<SampleTaken>(message)) ++samples_seen;
      collector.take(message);
    });
    run_case(job, services, sink);
    collector.finish(false);
    interrupted = collector.interrupted();
    aggregate(collector.report(), 0.95, 1, false);
    return collector.report();
  }
  bool interrupted = false;
};

inline const EngineReport& engine_of(const CaseReport& c, const std::string& name) {
  for (const EngineReport& e : c.engines) {
    if (e.resolved_name == name) return e;
  }
  FAIL("no engine " << name);
  return c.engines.front();
}

inline std::string reason_of(const EngineReport& e) {
  return e.reasons.empty() ? "" : e.reasons.front();
}

}  // namespace mkbench::testing
