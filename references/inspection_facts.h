// The rows of an inspection that compare a model with this binary, or only say what was found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "references/checkpoint_files.h"
#include "references/config_scan.h"

namespace mkbench {

// Adds a row that keeps nothing from running: "<field> is <found>".
void inform(ModelFindings& findings, const std::string& field, const std::string& found,
            const std::string& source, const std::string& expected = {});

// The dimensions of a layer against the compiled shapes; layers, vocabulary and KV bytes. Dimensions
// that are 0 are not known and left out. `source` ends with what stands before a key's name.
void add_shape_facts(const ModelConfig& config, const std::string& source, ModelFindings& findings);

// What else a config says: `root` is the file's object.
void add_config_facts(const nlohmann::json& root, const ConfigScan& scan, ModelFindings& findings);

// Vocabularies by tensor, head, types, sizes, and parts that nothing here computes with.
void add_tensor_facts(const ConfigScan& scan, const Checkpoint& checkpoint,
                      ModelFindings& findings);

// The published model with these dimensions, or nothing.
std::string published_shape(const ModelShape& shape);

}  // namespace mkbench
