// ring's kernel as it records its timeline.
#pragma once

namespace mkbench::ring {

// Its only argument is a LaunchParams with `timeline` set.
const void* recorded_kernel();

}  // namespace mkbench::ring
