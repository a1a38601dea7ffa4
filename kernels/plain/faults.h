// plain with faults planted inside its kernel, for the fault corpus. The kernel is an instance of
// its own (instances/faults.cu), which no other engine runs.
#pragma once

#include <memory>

#include "kernels/plain/megakernel.h"
#include "references/fault_kind.h"
#include "references/model/shape.h"

namespace mkbench::plain {

// Whether `fault` is planted inside the kernel. Other faults are planted in weights, tables and
// launch parameters, with the kernel that ships.
bool has_hook(PlantedFault fault);

// make_plain() with options.fault in the kernel. A process may hold one such engine at a time,
// because the fault is a variable of the device code. Only Tiny's layer shape is compiled. Throws
// what make_plain() throws, and Error(kBadInput) for another shape or a fault without has_hook().
std::unique_ptr<Engine> make_plain_with_hook(const ModelWeights& weights, PlainOptions options);

}  // namespace mkbench::plain
