#include "harness/wire/calls.h"

#include "references/base/json_fields.h"

namespace mkbench {

nlohmann::json to_json(const ToHost& call) { return json_fields::write(call); }
nlohmann::json to_json(const FromHost& answer) { return json_fields::write(answer); }

ToHost call_from_json(const nlohmann::json& j) { return json_fields::read_as<ToHost>(j, ""); }
FromHost answer_from_json(const nlohmann::json& j) { return json_fields::read_as<FromHost>(j, ""); }

}  // namespace mkbench
