// Prints wire_fields(); the output is committed as scripts/wire.json.
#include <fmt/format.h>

#include "harness/wire/build_id.h"

int main() { fmt::print("{}", mkbench::wire_fields()); }
