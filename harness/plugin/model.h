// What a plugin is told of a model.
#pragma once

#include <string>
#include <vector>

#include "references/engine_abi.h"
#include "references/model/weights.h"

namespace mkbench {

// The record, the config's text and the list of tensors, to which the arguments of open() point.
class PluginModel {
 public:
  // `tensors` must live as long as this object. Throws Error(kBadInput) if the folder of the
  // weights has lost its config.json.
  PluginModel(const ModelWeights& weights, const std::vector<mkbench_tensor>& tensors);
  PluginModel(const PluginModel&) = delete;
  PluginModel& operator=(const PluginModel&) = delete;

  // The arguments of open() that follow from the model; the caller adds the others.
  mkbench_open arguments() const;

 private:
  mkbench_model record_{};
  std::string folder_, config_;  // folder_: empty for weights made in memory
  std::vector<const mkbench_tensor*> tensors_;
};

}  // namespace mkbench
