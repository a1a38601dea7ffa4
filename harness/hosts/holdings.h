// What the process of an engine holds, and whether that grows with every call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/device/process_tree.h"

namespace mkbench {

struct Holding {
  int64_t processes = 0;  // children; a host also gets those that left their parent
  int64_t threads = 0;
  int64_t bytes = 0;  // resident, and on the device
};

// What the process `pid` holds, without memory of a device. 0 for what the kernel does not tell.
Holding holding_of(pid_t pid);

// Watches one engine: a call of look() before each of its sequences.
class Holdings {
 public:
  // `weights_bytes` decides how much memory is worth a word.
  explicit Holdings(int64_t weights_bytes) : weights_bytes_(weights_bytes) {}

  // Number of sequences in which a holding must grow, throughout, before it is named: a pool that is
  // made once, or code that is compiled for the first lengths, does not.
  static constexpr int kSequences = 16;

  // `position`: where the sequence ended that ran since the last look. Memory is compared among
  // sequences that end at one position, since a new length may need new code and new buffers.
  // Returns what grows, or an empty string.
  std::string look(const Holding& now, int position);

 private:
  const int64_t weights_bytes_;
  std::vector<Holding> seen_;  // of the last kSequences + 1 looks
  int position_ = -1, alike_ = 0;
};

}  // namespace mkbench
