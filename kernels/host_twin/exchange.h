// The grid-wide exchange of the host twin: one arrival counter and epochs that only grow, as in the
// plain megakernel.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "kernels/phase.h"

namespace mkbench::host_twin {

// Where a block is: published at the start of every phase, read by watchdog and progress().
struct Location {
  Phase phase = Phase::kEmbed;
  int layer = -1;  // -1 outside of the layers
  int position = -1;
};

// What the watchdog found: the first block that is furthest behind, and the epoch that the others
// wait for.
struct Fault {
  int block = -1;
  Location at;
  uint64_t epoch_expected = 0;
  uint64_t epoch_seen = 0;  // last epoch at which `block` arrived
  int waiting = 0;          // blocks that did arrive at epoch_expected
};

// "block 3 did not arrive after phase attention, layer 2, position 17 (epoch expected 13, seen 12;
// ...)".
std::string to_string(const Fault& fault);

// All blocks arrive, then all go on. A block's n-th arrival is its epoch n, and it passes once
// `blocks * n` arrivals were counted. Nothing is zeroed while a launch runs: a word that is reset
// inside a launch can lose an arrival (hang) or let a block through on a stale count.
class Exchange {
 public:
  explicit Exchange(int blocks);

  // Suspends the calling block until every block has arrived as often as it has.
  class Wait {
   public:
    Wait(const Exchange& exchange, int block) : exchange_(exchange), block_(block) {}
    bool await_ready() const noexcept { return exchange_.passed(block_); }
    // The scheduler polls passed(); nothing needs to be queued.
    void await_suspend(std::coroutine_handle<>) const noexcept {}
    void await_resume() const noexcept {}

   private:
    const Exchange& exchange_;
    int block_;
  };

  // Publishes everything that `block` wrote and returns what to co_await before reading the others'
  // results.
  Wait arrive(int block);

  // True when the exchange at which `block` waits is complete (or when it has not arrived anywhere
  // yet). Acquires what all blocks wrote before they arrived.
  bool passed(int block) const {
    const uint64_t wanted = words_[block].wanted.load(std::memory_order_relaxed);
    return arrivals_.load(std::memory_order_acquire) >= wanted;
  }

  uint64_t arrivals() const { return arrivals_.load(std::memory_order_relaxed); }

  void enter(int block, Location at);
  Location location(int block) const;
  // Names the block that the others wait for. Called while the launch stands still.
  Fault find_fault() const;

  // Test hook, set between launches: `block` never makes the `nth` arrival of the next launch.
  void stall(int block, int nth);
  // Re-initialises counter, epochs and hook together: only between launches, after an aborted one.
  void restart();

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  // One cache line a block: whoever runs the block writes it in every phase.
  struct alignas(64) Word {
    std::atomic<uint64_t> epoch{0};     // arrivals that this block has made
    std::atomic<uint64_t> wanted{0};    // total arrivals that it waits for
    std::atomic<uint64_t> location{0};  // packed Location
  };

  const int blocks_;
  std::unique_ptr<Word[]> words_;
  alignas(64) std::atomic<uint64_t> arrivals_{0};
  int stall_block_ = -1;
  uint64_t stall_epoch_ = 0;
};

}  // namespace mkbench::host_twin
