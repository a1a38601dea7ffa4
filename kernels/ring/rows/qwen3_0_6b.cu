// The kernels for Qwen3-0.6B and the talker of Qwen3-TTS.
#include "kernels/ring/row_kernels.cuh"

template struct mkbench::ring::RowKernels<mkbench::layer_shape_index("qwen3-0.6b")>;
