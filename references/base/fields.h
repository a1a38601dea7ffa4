// Structs whose fields are listed once; writers, readers and schemas walk the list. Beside each
// struct stands:
//   template <typename V> void describe_fields(V& v, Tag<TheStruct>) {
//     v.field("name", &TheStruct::member, "what it means");
//     v.group("name", "what it holds", [](auto& g) { g.field(...); });  // nested, without a struct
//   }
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mkbench {

// Names a type in overloads: describe_fields(), struct_name(), enum_values().
template <typename T>
struct Tag {};

// The value of an enum that `word` names. The enum has enum_text(E) and enum_values(Tag<E>).
template <typename E>
std::optional<E> enum_from_text(Tag<E> tag, std::string_view word) {
  for (const E value : enum_values(tag)) {
    if (enum_text(value) == word) return value;
  }
  return std::nullopt;
}

// A number that may be withheld, with the reason; JSON null plus "<field>_reason".
struct Number {
  std::optional<double> value;
  std::string reason;
};

}  // namespace mkbench
