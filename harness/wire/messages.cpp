#include "harness/wire/messages.h"

#include "references/base/json_fields.h"

namespace mkbench {

nlohmann::json to_json(const FromHost& message) { return json_fields::write(message); }

FromHost message_from_json(const nlohmann::json& j) {
  try {
    return json_fields::read_as<FromHost>(j, "");
  } catch (const Error& error) {
    return Garbage{j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 200),
                   error.what()};
  }
}

}  // namespace mkbench
