// ring's kernel as it records its timeline.
#pragma once

namespace mkbench::ring {

// The kernel of kHeldRow: only the phases of held shapes note what they do. Its only argument is a
// LaunchParams with `timeline` set.
const void* recorded_kernel();

}  // namespace mkbench::ring
