// The texts of a report's token ids, from the tokenizer.json in its models' folders.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.h"

namespace mkbench {

// In every case whose model has a tokenizer.json, fills in token_texts, generated_text and those
// texts of parity tables and failed steps that no reference has given. Calls Python once for the
// whole report. Returns one line for each reason why ids remain without text.
std::vector<std::string> add_token_texts(Report& report);

}  // namespace mkbench
