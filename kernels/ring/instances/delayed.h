// ring's kernel with a block that never ends: LaunchParams::stall_block stops at the last layer of
// the launch's first step. For tests of post-mortems; no shipped program holds it.
#pragma once

namespace mkbench::ring {

// A value for RingOptions::kernel. A process that has launched it must end itself.
const void* delayed_kernel();

}  // namespace mkbench::ring
