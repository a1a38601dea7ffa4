// Makes the engines that a program is linked with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "references/engine_maker.h"

namespace mkbench {

class EngineFactory {
 public:
  explicit EngineFactory(std::vector<const EngineMaker*> makers) : makers_(std::move(makers)) {}

  // Makes the engine with the request's fault planted: in its weights, inside it or around it.
  // Throws Error(kBadInput) for an unknown name or a fault that the engine has no hook for,
  // Error(kUnsupportedDevice), and what the engine's maker throws.
  std::unique_ptr<Engine> make(const EngineRequest& request, const ModelWeights& weights) const;
  // Bytes of the device's memory that make() would take; 0 if the engine does not run there.
  int64_t bytes(const EngineRequest& request, const ModelConfig& config) const;
  // Switches an engine to an ablation and back; its weights stay. Returns why the engine has no
  // ablations, or an empty text.
  std::string ablate(const std::string& name, Engine& engine, Ablation ablation) const;
  // Library settings that the engine pins, one line.
  std::string settings(const std::string& name) const;

 private:
  const EngineMaker* find(const std::string& run) const;
  const EngineMaker& need(const EngineRequest& request) const;

  std::vector<const EngineMaker*> makers_;
};

}  // namespace mkbench
