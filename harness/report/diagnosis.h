// Which known bug explains an engine's failure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

struct Diagnosis {
  std::string text{};
  std::vector<std::string> names{};
  std::optional<double> error{}, next_error{};
  int tried = 0, known = 0;
};

constexpr std::string_view struct_name(Tag<Diagnosis>) { return "diagnosis"; }
template <typename V>
void describe_fields(V& v, Tag<Diagnosis>) {
  using D = Diagnosis;
  v.field("text", &D::text, "which known bug the engine's results are those of, in one line");
  v.field("names", &D::names,
          "the known bugs that fit, the best first; one alone is the diagnosis; empty: none fits");
  v.field("error", &D::error,
          "2-norm of the engine's centred logits less those of the best bug, over the same norm "
          "against the truth's; null without logits");
  v.field("next_error", &D::next_error, "error of the next bug; null without logits");
  v.field("tried", &D::tried, "known bugs that were tried");
  v.field("known", &D::known, "known bugs that this model can have");
}

}  // namespace mkbench
