// One case of a run: its model, engines and axes, and how it is judged and timed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/flow/case_settings.h"
#include "harness/flow/events.h"
#include "references/snapshot.h"

namespace mkbench {

// An engine of a case and its roles. judges: parity compares with it. yardstick: speed-ups are
// relative to it. candidate: it is under test. ceiling: it is timed in the blocks but not judged.
struct CaseEngine {
  std::string name;   // resolved: "eager", "ring", "plain", "host-twin", the path of a .so or .py
  std::string asked;  // as the user named it
  bool judges = false, yardstick = false, candidate = false, ceiling = false;

  bool timed() const { return yardstick || candidate; }
};

struct JudgedEngine {
  EngineFacts facts;
  ParityReport parity;  // without its rows
};

// Parity findings of an earlier case of the run, for all its engines on these weights.
struct JudgedCase {
  ReferencesFound references;
  std::map<std::string, JudgedEngine> engines;
};

// One case of a run with these settings: judge parity and, unless `whole_parity`, time the engines.
struct CaseJob : CaseSettings {
  Model model;
  std::optional<Model> original{};  // the model before it was quantised, to tell what that costs
  std::string device = "cpu";       // "cpu" or "cuda"
  int gpu = 0;
  std::vector<CaseEngine> engines;  // the judge first
  bool one_at_a_time = false;       // one engine is open at a time (--resident one)
  bool may_open_one = false;        // choose_residency() may set one_at_a_time, if memory is short
  // The layers of a truth that transformers computes stay in the host's memory (choose_residency()).
  bool truth_on_host = false;
  // Why no ceiling is timed beside the engines; empty if one is timed.
  std::string no_ceiling = "no ceiling was asked for";
  int depth = 0;                     // KV rows before the first timed step
  int n_gen = 0;                     // timed tokens; 0 in a prefill test
  int n_prompt = 0;                  // > 0: a prefill test of this many KV rows
  int blocks = 10, max_blocks = 10;  // paired blocks, over all processes
  // How often each timed engine is opened anew. With one_at_a_time every turn has its own process.
  int processes = 1;
  bool blocks_by_time = false;  // until each engine has kSampleS seconds of samples (replication.h)
  int warmup = 1;               // untimed runs of each engine in each process
  bool warmup_by_time = false;  // instead: until two windows agree (measure/warm_up.h)
  std::optional<JudgedCase> judged;  // if set, parity is not judged again
  double spin_scale = 1;
  std::string ring_row;   // of --tune: what ring uses instead of its table's row; empty: that row
  bool watched = false;   // a profiler watches: calls take longer than their pace predicts
  bool audited = false;   // after the timing, the bytes that each candidate reads are audited
  bool observed = false;  // in one block in eight, candidates decode once more, with logits
  int64_t l2_bytes = 0;   // of the job's card; 0 on a CPU

  bool cuda() const { return device == "cuda"; }
};

// The names of the engine that judges a case and of its two other runs.
struct JudgeRuns {
  std::string judge, truth = truth_run(judge), head_fp32 = head_fp32_run(judge);
};
inline JudgeRuns judge_runs(const CaseJob& job) {
  for (const CaseEngine& engine : job.engines) {
    if (engine.judges) return {engine.name};
  }
  return {kJudgeName};
}
// EngineRequest::settings: for hf and its runs the lines KEY=VALUE that their open() is given, with the
// file of the engine's values once there is one; empty for other engines.
inline std::string hf_settings(const CaseJob& job, const std::string& run,
                               const std::string& values = {}) {
  const JudgeRuns runs = judge_runs(job);
  const bool hf = run_of(run).engine == runs.judge || run == kHfStaticName;
  if (!hf || job.model.truth != Truth::kTransformers) return {};
  std::string lines = job.truth_on_host && run == runs.truth ? "layers=host" : "";
  if (job.model.dequantised) lines += (lines.empty() ? "values=" : "\nvalues=") + values;
  return lines;
}

inline bool has_engine(const CaseJob& job, std::string_view name) {
  return std::any_of(job.engines.begin(), job.engines.end(),
                     [&](const CaseEngine& engine) { return engine.name == name; });
}

// Rows in the KV cache before the first step of the case.
inline int first_depth(const CaseJob& job) {
  if (!job.ids.empty()) return static_cast<int>(job.ids.size()) - 1;
  return job.n_prompt > 0 ? job.n_prompt : job.depth;
}

// The fault that is planted in the engine `name`; only candidates get one.
inline PlantedFault fault_of(const CaseJob& job, const std::string& name) {
  for (const CaseEngine& engine : job.engines) {
    if (engine.candidate && engine.name == name) return job.fault;
  }
  return PlantedFault::kNone;
}

// The context to allocate: rounded up so that cases of similar lengths have caches of one size, and
// never longer than the model allows.
int context_for(int positions, int max_positions);

// "tiny d=0 n=128", "synthetic:deep pp512"
std::string case_name(const CaseJob& job);

// Number of untimed tokens that check a prefill test.
inline constexpr int kPrefillCheckTokens = 8;

}  // namespace mkbench
