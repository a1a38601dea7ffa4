// ring's kernel that records its timeline.
#pragma once

namespace mkbench::ring {

// The kernel of kHeldRow: only the phases of held shapes record a timeline. Its only argument is a
// LaunchParams with `timeline` set.
const void* recorded_kernel();

}  // namespace mkbench::ring
