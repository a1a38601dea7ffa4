// What the parent asks a worker to do: one job, sent as one JSON document.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mkbench {

// Everything about one case. Engines are named by their resolved names ("eager", "ring", "plain",
// "host-twin").
struct CaseJob {
  std::string kind = "case";   // "probe", "plan", "ceiling", "doctor", "tune", "repeats", "case"
  std::string model;           // one item of --model
  std::string device = "cpu";  // "cpu" or "cuda"
  int gpu = 0;
  std::vector<std::string> models;  // of a probe: those for which "megakernel" is to be resolved
  std::vector<std::string> baselines, candidates;
  std::vector<std::string> asked_names;  // what the user called them, baselines first
  bool time_baselines = true;            // false: they judge, and are not timed (--compare none)
  bool profile = false;                  // ablations after the samples
  bool whole_parity = false;             // `mkbench parity`: every check, and no clock
  int depth = 0;                         // KV rows before the first timed step
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
  // What an earlier case of the same run found about these weights' parity, which then is not
  // judged again; null where there is nothing. See parity_memo().
  nlohmann::json judged;
  int fault = 0;  // PlantedFault
  int nvtx = 1;   // NvtxMode
  double spin_scale = 1;
  std::string test_worker;  // "hang:ENGINE" etc.
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseJob, kind, model, device, gpu, models, baselines, candidates,
                                   asked_names, time_baselines, profile, whole_parity, depth, n_gen,
                                   n_prompt, ids, blocks, max_blocks, warmup, target_rel_ci,
                                   random_order, seed, confidence, reference_dir, require_reference,
                                   judged, fault, nvtx, spin_scale, test_worker)

// Rows of KV cache before the first step of the case.
inline int first_depth(const CaseJob& job) {
  if (!job.ids.empty()) return static_cast<int>(job.ids.size()) - 1;
  return job.n_prompt > 0 ? job.n_prompt : job.depth;
}

// Stages of these runs begin with this word; a worker that ends in one strikes no engine.
inline constexpr char kProfileStage[] = "profile";

// The hidden command and its two arguments: the file descriptors of the job and of the messages.
inline constexpr char kWorkerCommand[] = "__worker";

// The job of `mkbench selftest`.
inline constexpr char kSelftestJob[] = "selftest";

// "tiny d=0 n=128", "synthetic:deep pp512"
std::string case_name(const CaseJob& job);

// Untimed tokens that check a prefill test.
inline constexpr int kPrefillCheckTokens = 8;

}  // namespace mkbench
