// What a number format costs, beside the time of the engines that compute in it: figures about the
// model, not about an engine. The truth T of the model before it was quantised and the truth T' of what its
// stored weights stand for compute the same ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/measure/statistics.h"
#include "references/base/fields.h"

namespace mkbench {

struct FormatCost {
  std::string original;  // the model of T
  int64_t steps = 0, text_steps = 0;
  double kl = 0, largest_kl = 0, same_top = 0;
  double limit = 0;  // --max-kl; 0: none
  Number original_perplexity{}, perplexity{};
};

constexpr std::string_view struct_name(Tag<FormatCost>) { return "format_cost"; }
template <typename V>
void describe_fields(V& v, Tag<FormatCost>) {
  using F = FormatCost;
  v.field("original", &F::original, "the model before it was quantised, which T computes");
  v.field("steps", &F::steps, "ids of the references' prompts and answers that both computed");
  v.field("kl", &F::kl, "KL(T || T') in nats, mean over the steps");
  v.field("largest_kl", &F::largest_kl, "the largest of a step");
  v.field("same_top", &F::same_top, "share of the steps at which T and T' have one largest logit");
  v.field("limit", &F::limit, "largest mean KL that passes, by --max-kl; 0: none");
  v.field("text_steps", &F::text_steps,
          "ids of prompts that are text, by which perplexity is told");
  v.field("original_perplexity", &F::original_perplexity, "of these ids under T");
  v.field("perplexity", &F::perplexity, "of these ids under T'");
}

// "against tiny, over 136 ids: KL 0.0123 (largest 0.4), the same largest logit in 97.8 %"
std::string cost_text(const FormatCost& cost);

}  // namespace mkbench
