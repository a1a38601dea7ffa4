// The host's view of the device translation units: one function for each kernel, asynchronous on
// the default stream. Shapes are in inputs.h and in the kernels' headers.
#pragma once

#include "kernels/prefill/inputs.h"

namespace mkbench::prefill {

// load_*() load the kernels on the current device, so that the first prefill does not wait for that,
// and grant them their shared memory. They throw Error(kUnsupportedDevice) when the binary has no
// code for the device, Error(kCuda).
void load_rows();
void load_gemm();
void load_attention();

void embed_rows(const unsigned short* embed, const int* ids, int rows, int hidden, float* residual);
void normalize_rows(const float* residual, const unsigned short* weight, float eps, int rows,
                    int hidden, SplitRows out);
void finish_heads(const HeadsInput& in, const PlainKv& kv);
void finish_heads(const HeadsInput& in, const RingKv& kv);
void attend_rows(const AttentionInput& in, const PlainKv& kv);
void attend_rows(const AttentionInput& in, const RingKv& kv);

// out (rows, columns) = a W^T. `columns` and the depth must be multiples of 64.
void multiply_store(const GemmInput& in, int columns, float* out);
// residual (rows, columns) += a W^T. `columns` and the depth must be multiples of 64.
void multiply_add(const GemmInput& in, int columns, float* residual);
// out (rows, units) = silu(a G^T) * (a U^T) as two bf16 planes, where the weights are [G; U]
// stacked. `units` must be a multiple of 64, the depth a multiple of 32.
void multiply_swiglu(const GemmInput& in, int units, SplitRows out);

}  // namespace mkbench::prefill
