// State receipts: does a timed run leave the same state as a run that shows its logits?
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "references/engine.h"

namespace mkbench {

inline constexpr int kStateSteps = 8;    // decode steps after the timed run
inline constexpr int kReceiptShare = 8;  // later blocks: 1 sample in this many gets a receipt

struct StateReceipt {
  std::string compared{};  // what was compared; empty: nothing, because the cache is full
  std::string problem{};   // why the states differ, else empty
  bool repeats = true;     // if there is a problem: whether runs with logits equal each other
  // Ids after the timed run, from an engine without logits. They must be right.
  std::vector<int32_t> further{};
};

// True if the engine's rows are those of `steps` steps behind `restart`. A restore alone shows nothing
// of an engine that goes back to a copy of its own: it compares the copy with itself.
bool has_rows_of(Engine& engine, int steps, const std::function<void()>& restart);

// The engine has just emitted `ids`. It continues with logits; then `restart` sets it to its start,
// with the same input pending, and it runs the same path with logits throughout. Ids, the last
// logits and, with snapshots, the checksums of the KV rows must be equal to the bit. An engine that
// is not deterministic must only continue with the same ids, near ties excepted. On a difference, the
// run with logits is made twice more: if these two differ, the engine is nondeterministic even untimed.
StateReceipt take_state_receipt(Engine& engine, int vocab, const std::vector<int32_t>& ids,
                                const std::function<void()>& restart);

}  // namespace mkbench
