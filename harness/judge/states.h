// What an engine shows of its inside: hidden states and KV rows, and whether they are numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "references/engine.h"

namespace mkbench {

// First state that holds NaN or Inf; what was looked at.
struct StateScan {
  int states = 0;  // hidden states and KV rows that the engine showed
  std::string
      first;  // "hidden state of layer 3", "KV row of layer 0, position 17"; empty: all finite
};

// Looks at the hidden state of every layer after the last step, and at KV rows of every layer: the
// first, the last, and those on either side of `boundary` (where decoding took over from prefill),
// or all of them.
StateScan scan_states(Engine& engine, int layers, int boundary, bool every_row);

}  // namespace mkbench
