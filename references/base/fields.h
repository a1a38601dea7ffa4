// Structs whose fields are listed once: writers, readers and schemas walk the list. Beside each
// struct stands
//   template <typename V> void describe_fields(V& v, Tag<TheStruct>) {
//     v.field("name", &TheStruct::member, "what it means");
//     v.group("name", "what it holds", [](auto& g) { g.field(...); });  // nested, without a struct
//   }
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mkbench {

// Names a type in overloads: describe_fields(), struct_name(), enum_from_text().
template <typename T>
struct Tag {};

// A number that may be withheld, with the reason; JSON null plus "<field>_reason".
struct Number {
  std::optional<double> value;
  std::string reason;
};

}  // namespace mkbench
