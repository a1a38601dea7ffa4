// What the parent asks a host to do: one job, sent as one JSON document.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/wire/messages.h"
#include "references/fault_kind.h"

namespace mkbench {

// An engine of a case and its roles: the judge is what parity compares with, a speed-up is quoted
// against a yardstick, and a candidate is what a person asks about.
struct CaseEngine {
  std::string name;   // resolved: "eager", "ring", "plain", "host-twin", a path that ends in .so
  std::string asked;  // what the user called it
  bool judges = false, yardstick = false, candidate = false;

  bool timed() const { return yardstick || candidate; }
};
template <typename V>
void describe_fields(V& v, Tag<CaseEngine>) {
  v.field("name", &CaseEngine::name);
  v.field("asked", &CaseEngine::asked);
  v.field("judges", &CaseEngine::judges);
  v.field("yardstick", &CaseEngine::yardstick);
  v.field("candidate", &CaseEngine::candidate);
}

struct JudgedEngine {
  EngineFacts facts;
  ParityReport parity;  // without its table
};
template <typename V>
void describe_fields(V& v, Tag<JudgedEngine>) {
  v.field("facts", &JudgedEngine::facts);
  v.field("parity", &JudgedEngine::parity);
}

// What an earlier case of the run found about the parity of all its engines on these weights.
struct JudgedCase {
  ReferencesFound references;
  std::map<std::string, JudgedEngine> engines;
};
template <typename V>
void describe_fields(V& v, Tag<JudgedCase>) {
  v.field("references", &JudgedCase::references);
  v.field("engines", &JudgedCase::engines);
}

enum class NvtxMode { kOff, kBlock };

// Everything about one case: parity, and unless `whole_parity` the clock.
struct CaseJob {
  static constexpr char kType[] = "case";
  std::string model;           // one item of --model
  std::string device = "cpu";  // "cpu" or "cuda"
  int gpu = 0;
  std::vector<CaseEngine> engines;  // the judge first
  bool profile = false;             // ablations after the samples
  bool whole_parity = false;        // `mkbench parity`: every check, and no clock
  int depth = 0;                    // KV rows before the first timed step
  int n_gen = 0;             // timed tokens; of a prefill test the untimed ones that check it
  int n_prompt = 0;          // > 0: a prefill test of so many KV rows
  std::vector<int32_t> ids;  // prompt ids; empty: the reference's or seeded ones
  int blocks = 10, max_blocks = 10, warmup = 1;
  double target_rel_ci = 0;  // 0 = off
  bool random_order = false;
  uint64_t seed = 1;
  double confidence = 0.95;
  std::string reference_dir;  // empty: the committed ones
  bool require_reference = false;
  std::optional<JudgedCase> judged;  // parity is not judged again where it is there
  PlantedFault fault = PlantedFault::kNone;
  NvtxMode nvtx = NvtxMode::kBlock;
  double spin_scale = 1;
  std::string test_worker;  // "hang:ENGINE" etc.

  bool cuda() const { return device == "cuda"; }
};
template <typename V>
void describe_fields(V& v, Tag<CaseJob>) {
  using J = CaseJob;
  v.field("model", &J::model);
  v.field("device", &J::device);
  v.field("gpu", &J::gpu);
  v.field("engines", &J::engines);
  v.field("profile", &J::profile);
  v.field("whole_parity", &J::whole_parity);
  v.field("depth", &J::depth);
  v.field("n_gen", &J::n_gen);
  v.field("n_prompt", &J::n_prompt);
  v.field("ids", &J::ids);
  v.field("blocks", &J::blocks);
  v.field("max_blocks", &J::max_blocks);
  v.field("warmup", &J::warmup);
  v.field("target_rel_ci", &J::target_rel_ci);
  v.field("random_order", &J::random_order);
  v.field("seed", &J::seed);
  v.field("confidence", &J::confidence);
  v.field("reference_dir", &J::reference_dir);
  v.field("require_reference", &J::require_reference);
  v.field("judged", &J::judged);
  v.field("fault", &J::fault);
  v.field("nvtx", &J::nvtx);
  v.field("spin_scale", &J::spin_scale);
  v.field("test_worker", &J::test_worker);
}

// Memory and least time of a case: PlanAnswer.
struct PlanJob {
  static constexpr char kType[] = "plan";
  CaseJob of;
};
template <typename V>
void describe_fields(V& v, Tag<PlanJob>) {
  v.field("of", &PlanJob::of);
}

// The repeated prompts of a case in a process that has done nothing else: RepeatsAnswer.
struct RepeatsJob {
  static constexpr char kType[] = "repeats";
  CaseJob of;
};
template <typename V>
void describe_fields(V& v, Tag<RepeatsJob>) {
  v.field("of", &RepeatsJob::of);
}

// What the machine has: ProbeAnswer.
struct ProbeJob {
  static constexpr char kType[] = "probe";
  int gpu = 0;
  std::vector<std::string> models{};  // those for which "megakernel" is to be resolved
};
template <typename V>
void describe_fields(V& v, Tag<ProbeJob>) {
  v.field("gpu", &ProbeJob::gpu);
  v.field("models", &ProbeJob::models);
}

// The read bandwidth of a card: CeilingAnswer.
struct CeilingJob {
  static constexpr char kType[] = "ceiling";
  int gpu = 0;
};
template <typename V>
void describe_fields(V& v, Tag<CeilingJob>) {
  v.field("gpu", &CeilingJob::gpu);
}

// `mkbench doctor`: DoctorAnswer.
struct DoctorJob {
  static constexpr char kType[] = "doctor";
  int gpu = 0;
};
template <typename V>
void describe_fields(V& v, Tag<DoctorJob>) {
  v.field("gpu", &DoctorJob::gpu);
}

// `mkbench tune`: TuneAnswer.
struct TuneJob {
  static constexpr char kType[] = "tune";
  int gpu = 0;
};
template <typename V>
void describe_fields(V& v, Tag<TuneJob>) {
  v.field("gpu", &TuneJob::gpu);
}

// `mkbench selftest`: a LaneStarted and a LaneDone for each lane.
struct SelftestJob {
  static constexpr char kType[] = "selftest";
  int gpu = 0;
  std::vector<size_t> lanes{};  // indices into fault_lanes()
};
template <typename V>
void describe_fields(V& v, Tag<SelftestJob>) {
  v.field("gpu", &SelftestJob::gpu);
  v.field("lanes", &SelftestJob::lanes);
}

using ToHost = std::variant<CaseJob, PlanJob, RepeatsJob, ProbeJob, CeilingJob, DoctorJob, TuneJob,
                            SelftestJob>;

nlohmann::json to_json(const ToHost& job);
// Throws Error(kBadInput) naming the field.
ToHost job_from_json(const nlohmann::json& j);

// Rows of KV cache before the first step of the case.
inline int first_depth(const CaseJob& job) {
  if (!job.ids.empty()) return static_cast<int>(job.ids.size()) - 1;
  return job.n_prompt > 0 ? job.n_prompt : job.depth;
}

// The fault that is planted in an engine of the case: candidates alone take one.
inline PlantedFault fault_of(const CaseJob& job, const std::string& name) {
  for (const CaseEngine& engine : job.engines) {
    if (engine.candidate && engine.name == name) return job.fault;
  }
  return PlantedFault::kNone;
}

// Stages of these runs begin with this word; a host that ends in one strikes no engine.
inline constexpr char kProfileStage[] = "profile";

// The hidden command and its two arguments: the file descriptors of the job and of the messages.
inline constexpr char kWorkerCommand[] = "__worker";

// "tiny d=0 n=128", "synthetic:deep pp512"
std::string case_name(const CaseJob& job);

// Untimed tokens that check a prefill test.
inline constexpr int kPrefillCheckTokens = 8;

}  // namespace mkbench
