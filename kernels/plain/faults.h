// plain with faults planted inside its kernel: an instance of its own, which nothing that ships
// runs. For the fault corpus.
#pragma once

#include <memory>

#include "kernels/plain/megakernel.h"
#include "references/fault_kind.h"
#include "references/qwen3.h"

namespace mkbench::plain {

// Whether the kernel has a hook for `fault`; others it takes from weights, tables and parameters.
bool has_hook(PlantedFault fault);

// make_plain() with options.fault in the kernel. One such engine at a time in a process: the fault
// is a variable of the device code. Tiny's layer shape only. Throws what make_plain() throws, and
// Error(kBadInput) for a fault without a hook or another shape.
std::unique_ptr<Engine> make_plain_with_hook(const ModelWeights& weights, PlainOptions options);

}  // namespace mkbench::plain
