// The slots in which a plugin keeps states of its own. A snapshot names a state by its position and
// checksum, because snapshots are values that any number of callers may keep.
#pragma once

#include <cstdint>
#include <string>

#include "harness/plugin/handle.h"

namespace mkbench {

class Slots {
 public:
  explicit Slots(const PluginHandle& plugin) : plugin_(plugin) {}

  // Saves the state in the slot that was least recently used, and returns its checksum.
  // `pending`: the pending id as the plugin knows it. Throws Error(kRuntime).
  uint64_t save(int position, int32_t pending);
  // Goes back to a saved state and returns its `pending`. Throws Error(kIntegrity) if the plugin
  // finds its rows changed, Error(kRuntime) if no slot holds the state.
  int32_t restore(int position, uint64_t checksum);

 private:
  struct Slot {
    int position = -1;  // -1: holds none
    uint64_t checksum = 0;
    int32_t pending = -1;
    uint64_t used = 0;  // larger for a state that was saved or restored later
  };

  const PluginHandle& plugin_;
  Slot slots_[MKBENCH_SLOTS];
  uint64_t uses_ = 0;
};

}  // namespace mkbench
