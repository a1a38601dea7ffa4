// A committed reference: what HF transformers answered in fp32 (the truth) and in bf16 (the
// baseline, and the baseline with its head in fp32). scripts/capture_reference.py makes it, mkbench
// never does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "references/model/weights.h"

namespace mkbench {

// How many of the truth's largest logits a step keeps.
inline constexpr int kTopIds = 32;

// One teacher-forced step. A step of a token-only reference has `position` and `token` alone.
struct ReferenceStep {
  int position = 0;              // KV rows before the step
  int32_t token = -1;            // the truth's greedy id, which is also the next input
  std::vector<int32_t> top_ids;  // the truth's top 32 (or all, in smaller vocabularies), descending
  std::vector<float> top_logits;   // the truth's logits of top_ids
  double logsumexp = 0, mean = 0;  // over the truth's logits
  double centred_norm = 0;         // 2-norm of the truth's logits less their mean
  double margin = 0;               // the truth's largest logit less its second
  double max_abs = 0;              // largest absolute logit of the truth
  int32_t baseline_token = -1;     // argmax of the baseline's bf16 logits
  // Errors of the baseline with an fp32 head against the truth: 2-norm of the centred difference,
  // its largest entry over top_ids, KL over top_ids and one rest bucket, and the largest error of a
  // difference of two logits of top_ids.
  double baseline_error_norm = 0;
  double baseline_error_inf_top = 0;
  double baseline_kl = 0;
  double baseline_pairwise = 0;
  bool decided = false;       // margin > pairwise_d + one bf16 step at max_abs
  std::vector<float> sketch;  // products of the truth's centred logits with seeded +-1 vectors
};

struct ReferencePrompt {
  std::string name;
  std::string set;           // "strict" or "near-tie"
  std::string text;          // prompt as text, where the model has a text form
  std::vector<int32_t> ids;  // prompt ids; ids.size() - 1 KV rows before the first step
  std::vector<ReferenceStep> steps;
  std::vector<std::string> token_texts;  // one a step, printable; empty when there is no tokenizer
};

struct GreedyReference {
  std::filesystem::path path;
  std::string sha256;  // hash of the reference file
  std::string model_name;
  std::string weights_sha256;  // hash_weights() of the model that it was made from
  std::string versions;        // "transformers 5.17.0, torch 2.11.0"
  // Published ids without logits: the ids decide EXACT or TIE, and there are no error ratios.
  bool token_only = false;
  // D: the largest baseline_pairwise over all steps of all prompts.
  double pairwise_d = 0;
  int baseline_flips = 0;  // steps where the baseline with an fp32 head picks another id
  uint64_t sketch_seed = 0;
  int sketch_projections = 0;
  std::vector<ReferencePrompt> prompts;
  // Printable texts of the ids that occur in the file, where the capture had a tokenizer.
  std::map<int32_t, std::string> texts;
};

// The largest D that calibrates: four bf16 steps at the truth's largest absolute logit, but never
// less than 0.5, which is four steps at 16 to 32. With a wider band hardly any token is decided.
double largest_d(const std::vector<ReferencePrompt>& prompts);

// Reads and checks a reference file. Throws Error(kInvalidReference) with path and field for any
// defect (schema, empty steps, NaN or negative margins, unsorted or duplicate ids, lengths, a truth
// in low precision or with TF32 on, D over largest_d(), and a manifest.json beside it that gives
// another hash, naming both). With `must_be_listed` a file that no manifest.json lists is a defect
// too.
GreedyReference read_reference(const std::filesystem::path& path, bool must_be_listed = false);

// The references of a model: <dir>/<model name>/reference*.json, sorted by name; empty if there is
// none. "Qwen/" in front of the model's name is left out, case does not matter, and a model given
// by its path has no references. A lag set ("synthetic:short") has
// <dir>/synthetic/reference-short*.json.
std::vector<std::filesystem::path> find_references(const std::filesystem::path& dir,
                                                   const std::string& model_name);

// Files named <prefix>*.json of a folder, sorted by name; empty where there is no such folder.
std::vector<std::filesystem::path> list_references(const std::filesystem::path& folder,
                                                   const std::string& prefix);

// The distance between bf16 neighbours at x: 2^(e - 7) in [2^e, 2^(e + 1)); 0 unless x > 0.
double bf16_step(double x);

inline constexpr int kMaxProjections = 4096;
// Sign of entry `id` of a projection: -1 where bit 0 of splitmix64(seed xor (projection << 32) xor
// id) is set.
float sketch_sign(uint64_t seed, int projection, int32_t id);
// The first `projections` projections of the logits less their mean, accumulated in double.
std::vector<float> sketch_of(const float* logits, int vocab, uint64_t seed, int projections);

}  // namespace mkbench
