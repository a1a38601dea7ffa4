// An engine that replays recorded logits, with edits: faults of the gate's own logic need no
// kernel.
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

// What the fp32 oracle answers to all prompts of `reference`.
Recording record_truth(const ModelWeights& weights, const GreedyReference& reference);

// One step as it is answered; an edit changes what it likes.
struct ReplayedStep {
  size_t prompt = 0, step = 0;
  int decode = 0;  // number of the call, from 1, over the engine's life
  bool with_logits = false;
  std::vector<float>* logits = nullptr;  // [vocab]
  int32_t* id = nullptr;                 // lowest argmax of the logits as recorded
};

struct ReplayOptions {
  std::function<void(const ReplayedStep&)> edit = {};
  bool stuck_counter = false;  // launches are not counted
  bool stale_output = false;   // ids and logits are never written: -1 and whatever stood there
  int missing_ids = 0;         // of every decode
};

// The fp32 oracle as an engine, for capture_live(). It has neither snapshots nor poison.
std::unique_ptr<Engine> make_oracle_engine(const ModelWeights& weights);

// Knows the recorded prompts alone, and has neither snapshots nor poison. Steps are those of the
// recorded path whatever was emitted or forced before. Throws Error(kBadInput) for other prompts
// and for steps beyond the recording.
std::unique_ptr<Engine> make_replay(std::shared_ptr<const Recording> recording,
                                    ReplayOptions options);

}  // namespace mkbench
