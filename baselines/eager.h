// The libtorch eager baseline: a decoder's forward op by op, in HF's order and rounding, with a KV
// cache. CPU and CUDA, bf16 and fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

// Rows of a prompt that prefill computes in one forward pass.
inline constexpr int kPrefillChunkRows = 512;

struct EagerOptions {
  bool cuda = false;
  int gpu = 0;
  bool fp32 = false;       // the truth: weights widened to fp32, TF32 off
  bool head_fp32 = false;  // the baseline with its last matmul in fp32, the denominator of ratios
  // Decode steps of fixed shapes (static_step.h), each a replay of a CUDA graph on a card; some
  // operators are fused. Prefill stays eager's. Not with fp32 or head_fp32.
  bool graph = false;
  // Decode steps by a package of AOTInductor (compiled_package.h), with the fixed shapes of
  // `graph`, and also in a CUDA graph on a card. Not with graph, fp32 or head_fp32.
  bool compiled = false;
  int max_context = 4096;
  // CPU threads while the engine lives, 0 = libtorch's choice. libtorch has one number for the
  // whole process, so among several engines the newest decides.
  int threads = 0;
  PlantedFault fault = PlantedFault::kNone;

  bool static_steps() const { return graph || compiled; }
};

// Bytes of device (or host) memory that the engine takes, prefill and CUDA graphs included.
int64_t eager_bytes(const ModelConfig& config, const EagerOptions& options);

// How many KV rows the static steps of a context can read, ascending: powers of two from 256 on,
// and the whole context. A step reads the smallest such bucket that holds its rows.
std::vector<int> kv_buckets(int max_context);

// Throws Error(kUnsupportedDevice) if CUDA is wanted and unusable, Error(kEnvUnfit) if memory does
// not suffice, Error(kRuntime), Error(kNotBuilt) if `compiled` has no package and cannot build one.
std::unique_ptr<Engine> make_eager(const ModelWeights& weights, const EagerOptions& options = {});

// Facts of the linked libtorch, for doctor and reports.
struct TorchFacts {
  std::string version;
  std::string cuda_version;  // CUDA version that libtorch was built with; empty without CUDA
  // Architectures of libtorch's CUDA code, "sm_80 sm_90 ..."; empty if libtorch cannot list them,
  // e.g. without a driver.
  std::string architectures;
  bool cuda_available = false;
};
TorchFacts torch_facts();

// Result of one matrix product by libtorch, compared with the exact product of integers.
struct TorchCheck {
  bool ok = false;
  double got = 0, wanted = 0;  // the sum of all elements
  std::string error;           // one line; empty when ok
};
// Multiplies bf16 matrices [512, 256] and [256, 768] on the device and checks every element. Never
// throws; a failure is returned.
TorchCheck check_torch(bool cuda, int gpu);

// The settings that every eager run pins, as recorded in reports ("allow_tf32=0 ...").
std::string eager_settings();

}  // namespace mkbench
