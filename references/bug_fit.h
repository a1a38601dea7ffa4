// What a failing engine gave, and how well known bugs of decoders explain it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mkbench {

// One teacher-forced sequence. The engine's results are those of the last found.size() rows.
struct ObservedRun {
  std::vector<int32_t> ids;      // input of every row: the prompt's ids, then the forced ones
  int prompt = 1;                // how many of them are the prompt's
  std::vector<int32_t> found{};  // the engine's ids; -1: none came back
  std::vector<float> logits{};   // [found.size(), vocab]; empty where the engine shows none
};

struct BugQuestion {
  std::vector<ObservedRun> runs{};
  double tau = 0;      // a token whose logit is at most this far below the largest is a near tie
  double seconds = 0;  // after this time no further bug is tried
};

// How well one bug, or two together, explain the runs. An error is the 2-norm, over all rows, of the
// engine's centred logits less the bug's, over the same norm against the truth's: 1 explains
// nothing. Both errors are -1 where the engine shows no logits.
struct BugFit {
  std::string name;      // "rope_interleaved", "layer_skipped", "eps+gelu"
  std::string text;      // "RoPE pairs (2i, 2i + 1) instead of (i, i + 64)"
  double error = -1;     // that this bug leaves
  double rounding = -1;  // the error that bf16 arithmetic with this bug would leave
  int wrong = 0;         // the engine's ids that this bug does not give, near ties aside
  double surprise = 0;   // sum of -log p(id) of the engine's ids in the bug's softmax
};

struct BugFits {
  std::vector<BugFit> best;  // the best first, at most kBestFits; none: nothing was tried
  BugFit truth;              // no bug; its error is 1
  int tried = 0, known = 0;  // of the bugs that this model can have
  bool timed_out = false;    // the time was over before all were tried
};
inline constexpr int kBestFits = 8;

// A bug that leaves a larger error explains too little: it is not named, and tried with others.
inline constexpr double kMostLeft = 0.5;

// Without logits no bug is tried where fewer ids are wrong: one or two agree with some bug by chance.
inline constexpr int kEnoughIds = 4;

}  // namespace mkbench
