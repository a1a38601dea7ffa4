// Identifies a build: a parent and its hosts must be of the same one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace mkbench {

// "0.1.0 1a2b3c4d5e6f 5d6e7f8090a1b2c3": version, commit, and the first 16 digits
// of the sha256 of wire_fields().
std::string build_id();

// All calls and answers with their fields and default values. scripts/host.py, the host written in
// Python, has them in place of the C++ structs; its parent sends them before anything else.
nlohmann::json wire_fields();

}  // namespace mkbench
