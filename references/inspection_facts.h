// The rows of an inspection that compare a model with this binary, or only say what was found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "references/checkpoint_files.h"
#include "references/config_scan.h"

namespace mkbench {

// Adds a finding of severity kInformation: "<field> is <found>".
void inform(ModelFindings& findings, const std::string& field, const std::string& found,
            const std::string& source, const std::string& expected = {});

// Compares a layer's dimensions with the nearest compiled shape; states layers, vocabulary, context
// and KV bytes. A dimension of 0 is unknown and left out. A finding's source is `source` + its key.
void add_shape_facts(const ModelConfig& config, const std::string& source, ModelFindings& findings);

// Adds the other facts of a config; `root` is the file's whole object.
void add_config_facts(const nlohmann::json& root, const ConfigScan& scan, ModelFindings& findings);

// Adds vocabularies of embedding and head, types, bytes, and parts that mkbench does not run.
void add_tensor_facts(const ConfigScan& scan, const Checkpoint& checkpoint,
                      ModelFindings& findings);

// The name of the published model with these dimensions; empty if there is none.
std::string published_shape(const ModelShape& shape);

}  // namespace mkbench
