#include "kernels/cuda_check.h"
#include "kernels/prefill/gemm.cuh"
#include "kernels/prefill/launches.h"

namespace mkbench::prefill {
namespace {

template <class Tile, class Finish>
void allow_shared_memory() {
  MKBENCH_CUDA(cudaFuncSetAttribute(
      gemm_kernel<Tile, Finish>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
}

// Blocks that read the same weights are neighbours, so that all but the first find them in L2.
template <class Tile, class Finish>
void launch(const GemmInput& in, int columns, const Finish& finish) {
  const dim3 grid(static_cast<unsigned>((in.rows + Tile::kRows - 1) / Tile::kRows),
                  static_cast<unsigned>(columns / Tile::kColumns));
  gemm_kernel<Tile, Finish><<<grid, Tile::kThreads, Tile::kSharedBytes>>>(in, finish);
  MKBENCH_CUDA(cudaGetLastError());
}

}  // namespace

void load_gemm() {
  allow_shared_memory<WideTile, StoreRows>();
  allow_shared_memory<NarrowTile, StoreRows>();
  allow_shared_memory<WideTile, SwiGluRows>();
  allow_shared_memory<NarrowTile, AddRows>();
}

void multiply_store(const GemmInput& in, int columns, float* out) {
  if (columns % WideTile::kColumns != 0)
    return launch<NarrowTile>(in, columns, StoreRows{out, columns});
  launch<WideTile>(in, columns, StoreRows{out, columns});
}

void multiply_add(const GemmInput& in, int columns, float* residual) {
  launch<NarrowTile>(in, columns, AddRows{residual, columns});
}

void multiply_swiglu(const GemmInput& in, int units, SplitRows out) {
  launch<WideTile>(in, 2 * units, SwiGluRows{out, units});
}

}  // namespace mkbench::prefill
