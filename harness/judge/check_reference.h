// Does a reference fit the loaded weights?
#pragma once

#include <string>
#include <string_view>

#include "references/greedy_reference.h"
#include "references/model/weights.h"

namespace mkbench {

// Throws Error(kInvalidReference) naming both hashes if the reference was made from other
// weights. A reference without a hash (published ids) passes with all weights.
void check_reference_weights(const GreedyReference& reference, const ModelWeights& weights);

// Throws Error(kInvalidReference) naming prompt and position if a token of the reference's strict
// set is not the closed form of the lag set in a vocabulary of `vocab` ids, or if a prompt is too
// short for the closed form.
void check_closed_form(const GreedyReference& reference, std::string_view lagset, int vocab);
// check_closed_form() for a live reference, whose sets follow from margins: checks every prompt
// that has a closed form, whatever its set, and returns their number.
int check_live_closed_form(const GreedyReference& live, std::string_view lagset, int vocab);
// check_live_closed_form() as a line of the report: "3 of 4 prompts have ...".
std::string live_check_text(const GreedyReference& live, std::string_view lagset, int vocab);

}  // namespace mkbench
