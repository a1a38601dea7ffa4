// The kernels for Qwen3-4B.
#include "kernels/ring/row_kernels.cuh"

template struct mkbench::ring::RowKernels<mkbench::layer_shape_index("qwen3-4b")>;
