// A token id as text, in a report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "references/base/fields.h"

namespace mkbench {

// The text of one token id, by the tokenizer of the model's folder.
struct TokenText {
  int32_t id = -1;
  std::string text;  // the token's bytes, as printable() shows them
};

constexpr std::string_view struct_name(Tag<TokenText>) { return "token_text"; }
template <typename V>
void describe_fields(V& v, Tag<TokenText>) {
  v.field("id", &TokenText::id, "token id");
  v.field("text", &TokenText::text, "its bytes as text; what cannot be shown is escaped");
}

}  // namespace mkbench
