// Host's view of the device translation units: one function a kernel, asynchronous on the default
// stream. Shapes are in the kernels' headers.
#pragma once

#include "kernels/prefill/inputs.h"

namespace mkbench::prefill {

// Load the kernels, or the first prefill would wait for it, and grant them their shared memory, on
// the current device. Throw Error(kUnsupportedDevice) when there is no code for it, Error(kCuda).
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

// out (rows, columns) = a W^T; columns a multiple of 128, depth of 32.
void multiply_store(const GemmInput& in, int columns, float* out);
// residual (rows, columns) += a W^T; columns and depth multiples of 64.
void multiply_add(const GemmInput& in, int columns, float* residual);
// out (rows, units), split = silu(a G^T) * (a U^T), weights = [G; U]; units a multiple of 64, depth
// of 32.
void multiply_swiglu(const GemmInput& in, int units, SplitRows out);

}  // namespace mkbench::prefill
