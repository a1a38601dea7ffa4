// Where the elements of the prefill kernels' tiles lie: pure functions of indices, the same on host
// and device.
#pragma once

#include "kernels/partition.h"

namespace mkbench::prefill {

// Bytes from a tile's start to piece `chunk` of `row`. A tile in shared memory is rows of kChunks
// pieces of 16 bytes (8 bf16). Pieces are permuted inside a row, so that piece c of 8 neighbouring
// rows lies in 8 different bank groups: these are what one ldmatrix phase reads.
template <int kChunks>
MKBENCH_HD constexpr int chunk_offset(int row, int chunk) {
  static_assert(kChunks == 4 || kChunks % 8 == 0);
  constexpr int kRowsPerLine = kChunks == 4 ? 2 : 1;  // rows in the banks' 128 bytes
  constexpr int kTurns = kChunks == 4 ? 4 : 8;
  return (row * kChunks + (chunk ^ row / kRowsPerLine % kTurns)) * 16;
}

// Which piece of a 16 x 16 tile a lane addresses for ldmatrix. Loaded directly, the four 8 x 8
// tiles are the registers of an A operand of mma; loaded transposed, they are two B operands (k by
// n) of neighbouring columns.
MKBENCH_HD constexpr int a_row(int lane) { return lane % 16; }
MKBENCH_HD constexpr int a_chunk(int lane) { return lane / 16; }
// Which piece of 16 rows of an n-by-k matrix a lane addresses, for two B operands of neighbouring
// columns.
MKBENCH_HD constexpr int b_row(int lane) { return lane / 16 * 8 + lane % 8; }
MKBENCH_HD constexpr int b_chunk(int lane) { return lane / 8 % 2; }

// The row of the stacked matrix [gate; up] (2 * units rows) that makes column n of the product.
// Gate and up rows alternate by 8, so that one thread holds both results of a SwiGLU unit.
MKBENCH_HD constexpr int interleaved_row(int n, int units) {
  return n / 16 * 8 + n % 8 + n / 8 % 2 * units;
}

}  // namespace mkbench::prefill
