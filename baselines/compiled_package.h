// The engine `compiled`'s package: one decode step for a model's shape, compiled for a device by
// scripts/compile_step.py and kept in the user's cache folder. No torch header here.
#pragma once

#include <filesystem>
#include <string>

#include "references/model/shape.h"

namespace mkbench {

// What a package is compiled for. Weights, context length and RoPE's theta are inputs of the step.
struct PackageKey {
  ModelShape shape;
  double eps = 0;  // rms_norm_eps
  bool cuda = false;
  int gpu = 0;               // compiled on this card; any card of its architecture may load it
  std::string architecture;  // "sm_90"; on a CPU cpu_architecture()
  std::string torch_version, torch_cuda_version;  // of the libtorch that loads the package
};

// The package's file. If the cache has none, the package is built first, which takes one to four
// minutes and is announced on stderr. Throws Error(kNotBuilt), whose message says what is missing.
std::filesystem::path compiled_package(const PackageKey& key);

// Names the instruction sets of this machine's CPU: compiled code may use them unconditionally.
std::string cpu_architecture();

}  // namespace mkbench
