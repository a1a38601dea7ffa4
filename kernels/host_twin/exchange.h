// The grid-wide exchange of the host twin: one arrival counter that only grows, as in the plain
// megakernel.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "kernels/phase.h"
#include "references/standstill.h"
#include "references/stress.h"

namespace mkbench::host_twin {

// Where a block is: written at the start of every phase, read by watchdog and progress().
struct Location {
  Phase phase = Phase::kEmbed;
  int layer = -1;  // -1 outside of the layers
  int position = -1;
};

// A launch that stands still: the block with the fewest arrivals (the first of several), and the
// epoch for which the others wait.
struct Fault {
  int block = -1;
  Location at;
  uint64_t epoch_expected = 0;
  uint64_t epoch_seen = 0;  // last epoch at which `block` arrived
  int waiting = 0;          // number of blocks that have arrived at epoch_expected
};

// "block 3 did not arrive after phase attention, layer 2, position 17 (epoch expected 13, seen 12;
// ...)".
std::string to_string(const Fault& fault);

// All blocks arrive, then all go on. The n-th arrival of a block is its epoch n, and the block
// passes once `blocks * n` arrivals have been counted. Nothing is zeroed while a launch runs: a
// word that is reset inside a launch can lose an arrival (a hang) or let a block pass on a stale
// count.
class Exchange {
 public:
  explicit Exchange(int blocks);

  // Suspends the calling block until every block has arrived as often as the calling one.
  class Wait {
   public:
    Wait(const Exchange& exchange, int block) : exchange_(exchange), block_(block) {}
    bool await_ready() const noexcept { return exchange_.passed(block_); }
    // The scheduler polls passed(), so there is no queue of waiting blocks.
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    void await_resume() const noexcept {}

   private:
    const Exchange& exchange_;
    int block_;
  };

  // Publishes all that `block` has written. The block must co_await the result before it reads what
  // other blocks have written.
  Wait arrive(int block);

  // True if `block` has not arrived anywhere yet, or if the exchange at which it waits is complete.
  // Acquires what all blocks wrote before they arrived.
  bool passed(int block) const {
    const uint64_t wanted = words_[block].wanted.load(std::memory_order_relaxed);
    return block < resident_ &&
           counted(arrivals_.load(std::memory_order_acquire)) >= counted(wanted);
  }

  uint64_t arrivals() const { return counted(arrivals_.load(std::memory_order_relaxed)); }

  void enter(int block, Location at);
  Location location(int block) const;
  // The block for which the others wait. Only while the launch stands still.
  Fault find_fault() const;

  // Between launches: marks all blocks as not begun.
  void begin_launch();
  // Where all blocks are. Another thread may call this while a launch stands still. `position`: the
  // launch's first; `layers`: the model's; `lm_head`: the launch runs the LM head.
  Standstill standstill(int position, int layers, bool lm_head) const;

  // Faults that tests plant at an arrival: the block never goes on (kStall); its thread sleeps for ever
  // (kDelay); its arrival is not counted (kLose); it zeroes the counter first (kReset).
  enum class Disturbance { kStall, kDelay, kLose, kReset };
  // For tests, between launches: disturbs the `nth` arrival of `block` in the next launch.
  void disturb(Disturbance what, int block, int nth);
  void stall(int block, int nth) { disturb(Disturbance::kStall, block, nth); }
  // Between launches: counter and epochs begin at stress.count_from, and arrivals are delayed as in `stress`.
  void begin_at(const Stress& stress);
  // For tests: the counter has 32 bits and is compared as if it never overflowed.
  void count_in_32_bits() { count_mask_ = std::numeric_limits<uint32_t>::max(); }
  // For tests, between launches: blocks from number `resident` on do not begin, as happens when a grid
  // does not fit on the device.
  void hold_back(int resident) { resident_ = resident; }
  // Sets counter and epochs to begin_at()'s start (zero without it), and ends disturb() and
  // hold_back(). Only between launches; needed after an aborted one.
  void restart();

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  // One cache line a block: the thread that runs the block writes it in every phase.
  struct alignas(64) Word {
    std::atomic<uint64_t> epoch{0};     // arrivals that this block has made
    std::atomic<uint64_t> wanted{0};    // count of all arrivals for which this block waits
    std::atomic<uint64_t> location{0};  // packed Location
  };

  // The bits of a count that are compared.
  uint64_t counted(uint64_t count) const { return count & count_mask_; }
  void delay(int block, uint64_t epoch) const;

  const int blocks_;
  uint64_t count_mask_ = std::numeric_limits<uint64_t>::max();
  Stress stress_;
  std::unique_ptr<Word[]> words_;
  alignas(64) std::atomic<uint64_t> arrivals_{0};
  int resident_;
  Disturbance disturbance_ = Disturbance::kStall;
  int disturbed_block_ = -1;
  uint64_t disturbed_epoch_ = 0;
};

}  // namespace mkbench::host_twin
