#include "harness/wire/build_id.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "harness/wire/calls.h"
#include "mkbench_git.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

// Every alternative of a variant, with default values that show the fields' names and types.
template <typename Variant, size_t... I>
nlohmann::json examples(std::index_sequence<I...>) {
  nlohmann::json list = nlohmann::json::array();
  (list.push_back(json_fields::write(Variant(std::in_place_index<I>))), ...);
  return list;
}

template <typename Variant>
nlohmann::json examples() {
  return examples<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace

nlohmann::json wire_fields() {
  return {{"to_host", examples<ToHost>()}, {"from_host", examples<FromHost>()}};
}

std::string build_id() {
  const std::string fields = wire_fields().dump();
  return fmt::format("{} {} {}", MKBENCH_VERSION, std::string_view(kGitSha).substr(0, 12),
                     sha256_hex(fields.data(), fields.size()).substr(0, 16));
}

}  // namespace mkbench
