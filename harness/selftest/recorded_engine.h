// An engine that replays recorded logits, with edits: tests of the gate's own logic need no kernel.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// Logits of every step of a reference's prompts, teacher-forced on its path.
struct Recording {
  int vocab = 0;
  std::vector<std::vector<int32_t>> prompts;            // ids
  std::vector<std::vector<std::vector<float>>> logits;  // [prompt][step][vocab]
};

// Records the logits of the fp32 oracle for all prompts of `reference`.
Recording record_truth(const ModelWeights& weights, const GreedyReference& reference);

// One step of a replay, before it is returned; an edit may change logits and id.
struct ReplayedStep {
  size_t prompt = 0, step = 0;
  int decode = 0;  // number of the decode() call in the engine's life, from 1
  bool with_logits = false;
  std::vector<float>* logits = nullptr;  // [vocab]
  int32_t* id = nullptr;                 // lowest-index argmax of the recorded logits
};

struct ReplayOptions {
  std::function<void(const ReplayedStep&)> edit = {};
  bool stuck_counter = false;  // launches are not counted
  bool stale_output = false;   // ids read -1 and logits are never written
  int missing_ids = 0;         // ids cut off at the end of every decode
};

// The fp32 oracle as an engine, for capture_live(). It has neither snapshots nor poison.
std::unique_ptr<Engine> make_oracle_engine(const ModelWeights& weights);

// Answers recorded prompts only, and has neither snapshots nor poison. Steps follow the recorded
// path, whatever was emitted or forced before. Throws Error(kBadInput) for other prompts and for
// steps beyond the recording.
std::unique_ptr<Engine> make_replay(std::shared_ptr<const Recording> recording,
                                    ReplayOptions options);

}  // namespace mkbench
