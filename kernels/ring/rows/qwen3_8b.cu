// The kernels for Qwen3-8B.
#include "kernels/ring/row_kernels.cuh"

template struct mkbench::ring::RowKernels<mkbench::layer_shape_index("qwen3-8b")>;
