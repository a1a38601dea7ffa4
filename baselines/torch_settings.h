// What every libtorch run of mkbench pins, apart from the engines: no torch header here.
#pragma once

namespace mkbench {

// Pins precision and determinism for the whole process. Must run before the first cuBLAS call:
// cuBLAS reads CUBLAS_WORKSPACE_CONFIG once, when its first handle is made. Safe to call again.
void pin_torch_settings();

}  // namespace mkbench
