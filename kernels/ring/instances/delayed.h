// ring's kernel with a block that never comes back: LaunchParams::stall_block, in the launch's first step. For
// tests of post-mortems; no shipped program holds it.
#pragma once

namespace mkbench::ring {

// Takes RingOptions::kernel's place. A process that has launched it must end itself.
const void* delayed_kernel();

}  // namespace mkbench::ring
