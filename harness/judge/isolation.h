// Sequences must not influence each other, nor change KV rows that belong to another.
#pragma once

#include <functional>
#include <memory>

#include "harness/judge/repeats.h"

namespace mkbench {

// Makes a second engine like the first; empty if none can be made. May throw Error(kEnvUnfit).
using EngineFactory = std::function<std::unique_ptr<Engine>()>;

// Checks that prompt a decodes to the same bits before and after prompt b; that decoding leaves the
// prompt's KV rows unchanged and gives the same bits again from a snapshot and after a rewind, where
// the engine offers them; and that two engines taking turns decode what each decodes alone. `stop`, called before every part, may throw.
void judge_isolation(Engine& engine, const ReferencePrompt& a, const ReferencePrompt& b, int vocab,
                     const EngineFactory& make_second, const std::function<void()>& stop,
                     Findings& findings);

// Says so if a new engine is right on `prompt`, and on the same prompt after a reset gives what
// `truth` gives if the prompt follows the first run's rows; else returns an empty string. Both
// engines have room for the prompt and kRepeatSteps steps, twice.
std::string kept_by_reset(Engine& fresh, Engine& truth, const ReferencePrompt& prompt);

}  // namespace mkbench
