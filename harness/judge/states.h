// Looks at the hidden states and KV rows that an engine shows, for NaN and Inf.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "references/engine.h"

namespace mkbench {

struct StateScan {
  int states = 0;  // hidden states and KV rows that the engine showed
  // The first that holds NaN or Inf: "hidden state of layer 3", "KV row of layer 0, position 17";
  // empty if all are finite.
  std::string first;
};

// Looks at the hidden state of every layer after the last step, and at KV rows of every layer:
// all rows, or the first, the last, `boundary` (the first row that decoding wrote) and the row
// before it.
StateScan scan_states(Engine& engine, int layers, int boundary, bool every_row);

}  // namespace mkbench
