// The texts of a report's token ids, by the tokenizer.json in the folders of its models.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"

namespace mkbench {

// Fills in token_texts, generated_text and the texts of parity tables and failed steps that no
// reference has given, in every case whose model has a tokenizer.json. One call of Python for the
// whole report. Returns one line for each cause by which ids stay without text.
std::vector<std::string> add_token_texts(Report& report);

}  // namespace mkbench
