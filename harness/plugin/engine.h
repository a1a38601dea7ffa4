// An engine from a shared library that somebody else built, behind the C interface of
// references/engine_abi.h. Loaded in hosts only, so a crash of the library leaves the parent alive
// to write the report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "references/engine.h"
#include "references/model/weights.h"

namespace mkbench {

struct PluginOptions {
  std::string path;  // as given on the command line
  bool cuda = false;
  int gpu = 0;
  int max_context = 0;
};

// Loads the library, compares versions, and opens an engine. Its internal buffers are not poisoned;
// its outputs are poisoned and guarded, and it gets a copy of the weights that is compared at each
// reset() and audit(). An engine that takes no forced ids gets each of them as a late id; an engine
// that takes neither is reset and prefilled again.
// The engine has fewer positions than asked for if its table has a smaller max_context.
// Throws Error(kBadInput) for a file that is no such library, for another version, and for a model
// that it does not support;
// Error(kUnsupportedDevice) if the library has no code for the device; Error(kEnvUnfit) if it cannot
// run here; Error(kRuntime) if open() fails otherwise.
std::unique_ptr<Engine> make_plugin(const ModelWeights& weights, const PluginOptions& options);

}  // namespace mkbench
