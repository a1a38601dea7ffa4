#include "kernels/launch_checks.h"

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/layer_shapes.h"
#include "references/model/family.h"
#include "references/runnable.h"

namespace mkbench {
namespace {

// Reserve for the CUDA context, its modules and the allocator's rounding.
constexpr int64_t kSlackBytes = 64LL << 20;

int attribute(cudaDeviceAttr which, int gpu) {
  int value = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&value, which, gpu));
  return value;
}

}  // namespace

std::string layer_shape_text(const ModelShape& s) {
  const std::string parts = unlike_qwen3(s);
  return "hidden_size " + std::to_string(s.hidden) + ", intermediate_size " +
         std::to_string(s.intermediate) + ", num_attention_heads " + std::to_string(s.heads) +
         ", num_key_value_heads " + std::to_string(s.kv_heads) + ", head_dim " +
         std::to_string(s.head_dim) + (parts.empty() ? "" : ", " + parts);
}

std::string compiled_layer_shapes() {
  std::string text;
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& shape = kLayerShapes.shapes[i];
    std::string names;
    const auto add = [&](const std::string& name, const ModelShape& of) {
      if (of.same_layer_shape(shape)) names += (names.empty() ? "" : " and ") + name;
    };
    for (const CompiledShape& model : kCompiledShapes) add(std::string(model.name), model.shape);
    text += (text.empty() ? "" : "; ") + names + " (" + layer_shape_text(shape) + ")";
  }
  return text;
}

void check_context(const std::string& engine, const ModelConfig& config, int max_context) {
  if (max_context >= 1 && max_context <= config.max_positions) return;
  throw Error(ErrorKind::kBadInput, engine + ": context of " + std::to_string(max_context) +
                                        " positions, wanted 1 to max_position_embeddings " +
                                        std::to_string(config.max_positions));
}

void use_device(const std::string& engine, int gpu) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || gpu < 0 || gpu >= count) {
    cudaGetLastError();  // clears the error, or a later check would report it
    throw Error(ErrorKind::kUnsupportedDevice,
                engine + ": no GPU " + std::to_string(gpu) + " (found " +
                    std::to_string(status == cudaSuccess ? count : 0) + ": " +
                    cudaGetErrorString(status) + "); use --device cpu");
  }
  MKBENCH_CUDA(cudaSetDevice(gpu));
}

int64_t fitting_positions(int64_t bytes, int64_t free, int64_t bytes_per_position, int positions) {
  const int64_t missing = bytes - free;
  if (missing <= 0) return positions;
  return std::max<int64_t>(0, positions - (missing + bytes_per_position - 1) / bytes_per_position);
}

void check_memory(const std::string& engine, int64_t bytes, int64_t bytes_per_position,
                  int positions) {
  size_t free_bytes = 0, total_bytes = 0;
  MKBENCH_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  const int64_t needed = bytes + kSlackBytes, free = static_cast<int64_t>(free_bytes);
  if (needed <= free) return;
  std::string text = engine + ": needs " + std::to_string(needed >> 20) +
                     " MiB of GPU memory, free " + std::to_string(free >> 20) + " MiB";
  if (positions > 0) {
    const int64_t fit = fitting_positions(needed, free, bytes_per_position, positions);
    text += "; of the " + std::to_string(positions) + " positions asked for, " +
            (fit > 0 ? std::to_string(fit) : std::string("none (the weights are too large)")) +
            " would fit";
  }
  throw Error(ErrorKind::kEnvUnfit, text);
}

int co_resident_blocks(const LaunchConfig& launch, int gpu) {
  const int most_shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  cudaFuncAttributes attributes{};
  MKBENCH_CUDA(cudaFuncGetAttributes(&attributes, launch.kernel));
  const size_t static_shared = attributes.sharedSizeBytes;
  if (static_cast<size_t>(launch.shared_bytes) + static_shared > static_cast<size_t>(most_shared))
    return 0;
  int per_multiprocessor = 0;
  MKBENCH_CUDA(cudaFuncSetAttribute(launch.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    launch.shared_bytes));
  MKBENCH_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &per_multiprocessor, launch.kernel, launch.threads,
      static_cast<size_t>(launch.shared_bytes)));
  return attribute(cudaDevAttrMultiProcessorCount, gpu) * per_multiprocessor;
}

void require_co_resident(const std::string& engine, const LaunchConfig& launch, int gpu) {
  const bool cooperative = attribute(cudaDevAttrCooperativeLaunch, gpu) != 0;
  const int resident = co_resident_blocks(launch, gpu);
  const int most_shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
  if (cooperative && launch.blocks <= resident) return;
  const std::string shared = launch.shared_bytes == 0
                                 ? ""
                                 : " and " + std::to_string(launch.shared_bytes) +
                                       " bytes of shared memory (at most " +
                                       std::to_string(most_shared) + ")";
  throw Error(ErrorKind::kUnsupportedDevice,
              engine + ": " + std::to_string(launch.blocks) + " blocks of " +
                  std::to_string(launch.threads) + " threads" + shared +
                  " cannot be co-resident (" + std::to_string(resident) +
                  " fit, cooperative launch " + (cooperative ? "supported" : "not supported") +
                  ")");
}

}  // namespace mkbench
