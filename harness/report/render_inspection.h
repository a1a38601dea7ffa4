// What `mkbench inspect` prints of a model: tables for people, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "references/inspection.h"

namespace mkbench {

inline constexpr char kInspectionSchemaId[] = "mkbench.inspection";
inline constexpr int kInspectionSchemaVersion = 1;

// 0 if the model runs, else 2.
int inspection_exit_code(const Inspection& inspection);

// A table of the differences, a table of what else was found, and the verdict. If there are many
// findings of one kind, the first are shown and the others counted; the JSON has all.
std::string render_inspection(const Inspection& inspection);

nlohmann::json to_json(const Inspection& inspection);

}  // namespace mkbench
