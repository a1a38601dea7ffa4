// The maker of an engine that can nothing that is optional, for a library made by kernels/exported/library.cpp.
#include "references/engine_maker.h"

namespace mkbench {
namespace {

EngineCapabilities nothing() {
  return {.name = "lesser",
          .device = "cpu",
          .logits = false,
          .forced = false,
          .snapshots = false,
          .late_id = false,
          .deterministic = false};
}

}  // namespace

extern const EngineMaker lesser_maker{
    .name = "lesser", .make = nullptr, .bytes = nullptr, .can = nothing};

}  // namespace mkbench
