// Sequences must not reach each other, nor rows that are not theirs.
#pragma once

#include <functional>
#include <memory>

#include "harness/judge/repeats.h"

namespace mkbench {

// Makes a second engine like the first; null where that is not wanted, may throw
// Error(kEnvUnfit).
using EngineFactory = std::function<std::unique_ptr<Engine>()>;

// A, B, A equals A, to the bit; decoding leaves the rows of the prefix as they were, and from a
// snapshot goes the same way again; two engines that take turns decode what each decodes alone.
void judge_isolation(Engine& engine, const ReferencePrompt& a, const ReferencePrompt& b, int vocab,
                     const EngineFactory& make_second, const std::function<void()>& stop,
                     Findings& findings);

}  // namespace mkbench
