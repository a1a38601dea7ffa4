// References captured in this run, for weights without a committed one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "references/engine.h"
#include "references/greedy_reference.h"

namespace mkbench {

// The truth's own greedy path of `steps` steps after `ids`, with the errors that `head_fp32` (the
// baseline with its LM head in fp32) makes on it; unlike capture_live(), accepts any pairwise
// error. `go_on` is asked before every kMaxLogitSteps steps; the path ends when it returns false.
ReferencePrompt capture_path(
    Engine& truth, Engine& head_fp32, int vocab, const std::string& name,
    const std::vector<int32_t>& ids, int steps,
    const std::function<bool()>& go_on = [] { return true; });
// Seed and number of projections of the sketches in a captured path; the seed is "mkbench1" in
// ASCII. A committed reference has 512 projections. Here every step of a long walk is projected
// three times, which would take a minute with 512 and a vocabulary of 151,936.
inline constexpr uint64_t kLiveSketchSeed = 0x6d6b62656e636831;
inline constexpr int kLiveProjections = 128;

// A reference in memory for weights without a committed one: the path of `truth` (fp32), on which
// `baseline` and `head_fp32` are teacher-forced. Throws Error(kInvalidReference) when the largest
// pairwise error D is over largest_d().
GreedyReference capture_live(Engine& truth, Engine& baseline, Engine& head_fp32, int vocab,
                             const std::vector<std::vector<int32_t>>& prompts, int steps);

}  // namespace mkbench
