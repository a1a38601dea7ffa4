// Where a user's own files lie: variables of the environment, and the references that a user has
// captured.
#pragma once

#include <filesystem>
#include <vector>

#include "references/snapshot.h"

namespace mkbench {

// The value of an environment variable, or null where it is unset or empty.
const char* environment_value(const char* name);

// $XDG_DATA_HOME/mkbench, else $HOME/.local/share/mkbench; empty if neither variable is set.
std::filesystem::path user_data_dir();
// $XDG_CACHE_HOME/mkbench, else $HOME/.cache/mkbench; empty if neither variable is set.
std::filesystem::path user_cache_dir();

// The references that a user has captured for a model of their own (scripts/capture_reference.py),
// sorted by name, from the first of these places that has some:
//   FOLDER/reference*.json, FOLDER/reference/<folder's name>/reference*.json, and for a hub model
//   <user_data_dir()>/references/models--Org--Name/<commit>/reference*.json.
// Empty for a model that comes with mkbench.
std::vector<std::filesystem::path> find_users_references(const Model& model);

}  // namespace mkbench
