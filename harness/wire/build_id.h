// The build to which a parent and its hosts must belong.
#pragma once

#include <string>

namespace mkbench {

// "0.1.0 1a2b3c4d5e6f 5d6e7f8090a1b2c3": version, commit, wire_fields_hash().
std::string build_id();

// All calls and answers with their fields and default values, as JSON. scripts/wire.json is this
// text; scripts/host.py reads it in place of the C++ structs.
std::string wire_fields();

// The first 16 digits of wire_fields()'s sha256: the build of a host that is written in Python.
std::string wire_fields_hash();

}  // namespace mkbench
