// A committed reference: what HF transformers answered, in fp32 (T) and bf16 (B, B'), made by
// scripts/capture_reference.py and never by mkbench.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "references/weights.h"

namespace mkbench {

// One teacher-forced step. Ids and logits are empty in a token-only reference.
struct ReferenceStep {
  int position = 0;               // KV rows before the step
  int32_t token = -1;             // a_t: T's greedy id, which is also the next input
  std::vector<int32_t> top_ids;   // T's top 32 (or all, in smaller vocabularies), descending
  std::vector<float> top_logits;  // T's logits of them
  double logsumexp = 0, mean = 0, centred_norm = 0;  // of T's logits; centred_norm = |c(z^T)|_2
  double margin = 0;                                 // top-1 minus top-2 of T
  double max_abs = 0;                                // max |z^T|
  int32_t baseline_token = -1;                       // argmax of B (bf16 logits)
  double baseline_error_norm = 0;                    // |e^B'|_2
  double baseline_error_inf_top = 0;                 // |e^B'|_inf over T's top 32
  double baseline_kl = 0;        // KL(p^T || p^B') over T's top 32 and one rest bucket
  double baseline_pairwise = 0;  // largest pairwise error of B' over T's top 32
  bool decided = false;          // margin > D + one bf16 step at max_abs
  std::vector<float> sketch;     // projections of c(z^T) on `sketch_projections` seeded +-1 vectors
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
  std::string sha256;  // of the file
  std::string model_name;
  std::string weights_sha256;  // hash_weights() of the model that it was made from
  std::string versions;        // "transformers 5.17.0, torch 2.11.0"
  bool token_only =
      false;  // published ids without logits: decides EXACT / TIE by tokens, never ratios
  double pairwise_d =
      0;  // D: largest pairwise logit error of B' against T over calibration steps and the top 32
  int baseline_flips = 0;  // F_B'
  uint64_t sketch_seed = 0;
  int sketch_projections = 0;
  std::vector<ReferencePrompt> prompts;
};

// Reads and checks a reference file. Throws Error(kInvalidReference) with path and field for every
// defect (schema, empty steps, NaN or negative margins, unsorted or duplicate ids, lengths, T in
// low precision or with TF32 on, D > 0.5, and a manifest.json beside it that says another hash,
// naming both). `must_be_listed`: without a manifest that lists it, a defect too.
GreedyReference read_reference(const std::filesystem::path& path, bool must_be_listed = false);

// The references of a model: <dir>/<model name>/reference*.json, sorted by name; empty if there is
// none. Of the name, "Qwen/" is left out and case does not matter; a path has none. Of a lag set
// ("synthetic:short") they are <dir>/synthetic/reference-short*.json.
std::vector<std::filesystem::path> find_references(const std::filesystem::path& dir,
                                                   const std::string& model_name);

// sign of entry `id` of projection `p`: -1 where bit 0 of splitmix64(seed xor (p << 32) xor id) is
// set.
float sketch_sign(uint64_t seed, int projection, int32_t id);
// Projections of c(z) = z - mean(z), `projections` of them, double accumulation.
std::vector<float> sketch_of(const float* logits, int vocab, uint64_t seed, int projections);

}  // namespace mkbench
