// Structs whose fields are listed once; writers, readers and schemas walk the list. The list is a
// function beside the struct:
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

// A struct may hold its list itself: static void fields(auto& v) { list_fields(v, "a", &S::a); }
template <typename V, typename T>
requires requires(V& v) { T::fields(v); }
void describe_fields(V& v, Tag<T>) { T::fields(v); }

// Fields that need no explanation, as pairs of name and member.
template <typename V, typename Member, typename... Rest>
void list_fields(V& v, const char* name, Member member, Rest... rest) {
  v.field(name, member);
  if constexpr (sizeof...(rest) > 0) list_fields(v, rest...);
}

// A number that may be withheld, with the reason. In JSON a withheld number is null, and
// "<field>_reason" holds the reason.
struct Number {
  std::optional<double> value;
  std::string reason;
};

}  // namespace mkbench
