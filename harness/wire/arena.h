// Memory that a parent and one host share: ids and logits of a call lie there, so that 600 KB of
// logits a step do not go through JSON.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mkbench {

// A memfd (which needs no room in /dev/shm) and its mapping. The parent makes and enlarges it, and
// the host maps it again once it is larger. Neither can shrink it, because that would end the other
// process with SIGBUS.
class Arena {
 public:
  Arena();                             // the parent's side; throws Error(kRuntime)
  explicit Arena(int fd) : fd_(fd) {}  // the host's side
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int fd() const { return fd_; }
  // Memory of at least `bytes`; valid until a call with more. Throws Error(kRuntime) if there is
  // too little memory; on the host's side, if the parent has not made room.
  char* at_least(size_t bytes);

 private:
  int fd_ = -1;
  bool owner_ = false;
  char* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// Offsets of the arrays of a decode() of n steps: forced ids (at 0), emitted ids, logits.
struct DecodeArena {
  size_t ids, logits, bytes;
  DecodeArena(int n, bool with_logits, int vocab) {
    const auto steps = static_cast<size_t>(n);
    ids = (steps * sizeof(int32_t) + 63) / 64 * 64;
    logits = 2 * ids;
    bytes = logits + (with_logits ? steps * static_cast<size_t>(vocab) * sizeof(float) : 0);
  }
};

}  // namespace mkbench
