// An engine from a shared library that somebody else built, behind the C interface of
// references/engine_abi.h. Loaded in a worker only: whatever it does, the parent writes the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "references/engine.h"
#include "references/weights.h"

namespace mkbench {

struct PluginOptions {
  std::string path;  // as it was given
  bool cuda = false;
  int gpu = 0;
  int max_context = 0;
};

// Loads the library, compares versions and struct sizes, and opens an engine. There are no
// snapshots and no poison of its insides; its outputs are poisoned and guarded, and its weights are
// a copy that is compared at each reset() and audit(). An engine that takes no forced ids is reset
// and prefilled again wherever an id is forced on it.
// Throws Error(kBadInput) for a file that is no such library, another version or size, a model that
// it does not know; Error(kUnsupportedDevice) where it has no code for the device; Error(kEnvUnfit)
// where it cannot run here; Error(kRuntime) when open() fails otherwise.
std::unique_ptr<Engine> make_plugin(const ModelWeights& weights, const PluginOptions& options);

// Bytes of the device for the weights, and for a bf16 KV cache; what else it takes is its own.
int64_t plugin_bytes(const ModelConfig& config, int max_context);

}  // namespace mkbench
