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
// against a yardstick, and a candidate is an engine under test.
struct CaseEngine {
  std::string name;   // resolved: "eager", "ring", "plain", "host-twin", a path that ends in .so
  std::string asked;  // as the user named it
  bool judges = false, yardstick = false, candidate = false;

  bool timed() const { return yardstick || candidate; }
  static void fields(auto& v) {
    list_fields(v, "name", &CaseEngine::name, "asked", &CaseEngine::asked, "judges",
                &CaseEngine::judges, "yardstick", &CaseEngine::yardstick, "candidate",
                &CaseEngine::candidate);
  }
};

struct JudgedEngine {
  EngineFacts facts;
  ParityReport parity;  // without its table
  static void fields(auto& v) {
    list_fields(v, "facts", &JudgedEngine::facts, "parity", &JudgedEngine::parity);
  }
};

// Parity findings of an earlier case of the run, for all its engines on these weights.
struct JudgedCase {
  ReferencesFound references;
  std::map<std::string, JudgedEngine> engines;
  static void fields(auto& v) {
    list_fields(v, "references", &JudgedCase::references, "engines", &JudgedCase::engines);
  }
};

enum class NvtxMode { kOff, kBlock };

// One case: judge parity and, unless `whole_parity`, time the engines.
struct CaseJob {
  static constexpr char kType[] = "case";
  std::string model;           // one item of --model
  std::string device = "cpu";  // "cpu" or "cuda"
  int gpu = 0;
  std::vector<CaseEngine> engines;  // the judge first
  bool profile = false;             // ablations after the samples
  bool whole_parity = false;        // `mkbench parity`: every check, nothing timed
  int depth = 0;                    // KV rows before the first timed step
  int n_gen = 0;                    // timed tokens; in a prefill test, untimed tokens that check it
  int n_prompt = 0;                 // > 0: a prefill test with so many KV rows
  std::vector<int32_t> ids;         // prompt; empty: the reference's, or ids drawn from the seed
  int blocks = 10, max_blocks = 10, warmup = 1;
  double target_rel_ci = 0;  // 0 = off
  bool random_order = false;
  uint64_t seed = 1;
  double confidence = 0.95;
  std::string reference_dir;  // empty: the committed ones
  bool require_reference = false;
  std::optional<JudgedCase> judged;  // where set, parity is not judged again
  PlantedFault fault = PlantedFault::kNone;
  NvtxMode nvtx = NvtxMode::kBlock;
  double spin_scale = 1;
  std::string test_worker;  // "hang:ENGINE" etc.

  bool cuda() const { return device == "cuda"; }
  static void fields(auto& v) {
    list_fields(v, "model", &CaseJob::model, "device", &CaseJob::device, "gpu", &CaseJob::gpu,
                "engines", &CaseJob::engines, "profile", &CaseJob::profile, "whole_parity",
                &CaseJob::whole_parity, "depth", &CaseJob::depth, "n_gen", &CaseJob::n_gen,
                "n_prompt", &CaseJob::n_prompt, "ids", &CaseJob::ids, "blocks", &CaseJob::blocks,
                "max_blocks", &CaseJob::max_blocks, "warmup", &CaseJob::warmup, "target_rel_ci",
                &CaseJob::target_rel_ci, "random_order", &CaseJob::random_order, "seed",
                &CaseJob::seed, "confidence", &CaseJob::confidence, "reference_dir",
                &CaseJob::reference_dir, "require_reference", &CaseJob::require_reference, "judged",
                &CaseJob::judged, "fault", &CaseJob::fault, "nvtx", &CaseJob::nvtx, "spin_scale",
                &CaseJob::spin_scale, "test_worker", &CaseJob::test_worker);
  }
};

// Asks for the memory and the least time of a case. Answer: PlanAnswer.
struct PlanJob {
  static constexpr char kType[] = "plan";
  CaseJob of;
  static void fields(auto& v) { list_fields(v, "of", &PlanJob::of); }
};

// Repeats the prompts of a case in a process that has done nothing else. Answer: RepeatsAnswer.
struct RepeatsJob {
  static constexpr char kType[] = "repeats";
  CaseJob of;
  static void fields(auto& v) { list_fields(v, "of", &RepeatsJob::of); }
};

// Asks for the machine and its GPU. Answer: ProbeAnswer.
struct ProbeJob {
  static constexpr char kType[] = "probe";
  int gpu = 0;
  std::vector<std::string> models{};  // models for which "megakernel" is to be resolved
  static void fields(auto& v) {
    list_fields(v, "gpu", &ProbeJob::gpu, "models", &ProbeJob::models);
  }
};

// Measures the read bandwidth of a card. Answer: CeilingAnswer.
struct CeilingJob {
  static constexpr char kType[] = "ceiling";
  int gpu = 0;
  static void fields(auto& v) { list_fields(v, "gpu", &CeilingJob::gpu); }
};

// `mkbench doctor`. Answer: DoctorAnswer.
struct DoctorJob {
  static constexpr char kType[] = "doctor";
  int gpu = 0;
  static void fields(auto& v) { list_fields(v, "gpu", &DoctorJob::gpu); }
};

// `mkbench tune`. Answer: TuneAnswer.
struct TuneJob {
  static constexpr char kType[] = "tune";
  int gpu = 0;
  static void fields(auto& v) { list_fields(v, "gpu", &TuneJob::gpu); }
};

// `mkbench selftest`. Answers: a LaneStarted and a LaneDone for each lane.
struct SelftestJob {
  static constexpr char kType[] = "selftest";
  int gpu = 0;
  std::vector<size_t> lanes{};  // indices into fault_lanes()
  static void fields(auto& v) {
    list_fields(v, "gpu", &SelftestJob::gpu, "lanes", &SelftestJob::lanes);
  }
};

using ToHost = std::variant<CaseJob, PlanJob, RepeatsJob, ProbeJob, CeilingJob, DoctorJob, TuneJob,
                            SelftestJob>;

nlohmann::json to_json(const ToHost& job);
// Throws Error(kBadInput) naming the field.
ToHost job_from_json(const nlohmann::json& j);

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

// Stages of profile runs begin with this word; a host that ends in such a stage costs no engine its
// verdict.
inline constexpr char kProfileStage[] = "profile";

// The hidden command and its two arguments: the file descriptors of the job and of the messages.
inline constexpr char kWorkerCommand[] = "__worker";

// "tiny d=0 n=128", "synthetic:deep pp512"
std::string case_name(const CaseJob& job);

// Number of untimed tokens that check a prefill test.
inline constexpr int kPrefillCheckTokens = 8;

}  // namespace mkbench
