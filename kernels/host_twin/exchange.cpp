#include "kernels/host_twin/exchange.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/stress_delay.h"

namespace mkbench::host_twin {
namespace {

// Phase in bits 56-63, layer + 1 in 32-55, position + 1 in 0-31: zero means "nowhere yet".
uint64_t pack(Location at) {
  return static_cast<uint64_t>(at.phase) << 56 | static_cast<uint64_t>(at.layer + 1) << 32 |
         static_cast<uint64_t>(at.position + 1);
}

Location unpack(uint64_t word) {
  return {.phase = static_cast<Phase>(word >> 56),
          .layer = static_cast<int>(word >> 32 & 0xffffff) - 1,
          .position = static_cast<int>(static_cast<uint32_t>(word)) - 1};
}

// The phase after `at`, which a waiting block that has ended `at` would begin next.
Location next_after(Location at, int layers, bool lm_head) {
  if (at.phase != Phase::kDown && at.phase != Phase::kLmHead) {
    return {static_cast<Phase>(static_cast<int>(at.phase) + 1), at.layer, at.position};
  }
  if (at.phase == Phase::kDown && at.layer + 1 < layers)
    return {Phase::kQkv, at.layer + 1, at.position};
  if (at.phase == Phase::kDown && lm_head) return {Phase::kLmHead, -1, at.position};
  return {Phase::kEmbed, -1, at.position + 1};
}

}  // namespace

std::string to_string(const Fault& fault) {
  std::string text = "block " + std::to_string(fault.block) + " did not arrive after phase " +
                     std::string(phase_name(fault.at.phase));
  if (fault.at.layer >= 0) text += ", layer " + std::to_string(fault.at.layer);
  return text + ", position " + std::to_string(fault.at.position) + " (epoch expected " +
         std::to_string(fault.epoch_expected) + ", seen " + std::to_string(fault.epoch_seen) +
         "; blocks waiting " + std::to_string(fault.waiting) + ")";
}

Exchange::Exchange(int blocks)
    : blocks_(blocks), words_(std::make_unique<Word[]>(blocks)), resident_(blocks) {}

Exchange::Wait Exchange::arrive(int block) {
  Word& word = words_[block];
  const uint64_t epoch = word.epoch.load(std::memory_order_relaxed) + 1;
  if (stress_.delay_us > 0) delay(block, epoch);
  const bool disturbed = block == disturbed_block_ && epoch == disturbed_epoch_;
  if (disturbed && disturbance_ == Disturbance::kStall) {
    word.wanted.store(kNever, std::memory_order_relaxed);
    return {*this, block};
  }
  while (disturbed && disturbance_ == Disturbance::kDelay) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (disturbed && disturbance_ == Disturbance::kReset) {
    arrivals_.store(0, std::memory_order_relaxed);
  }
  word.epoch.store(epoch, std::memory_order_relaxed);
  word.wanted.store(epoch * static_cast<uint64_t>(blocks_), std::memory_order_relaxed);
  if (disturbed && disturbance_ == Disturbance::kLose) return {*this, block};
  // Release publishes the results of this block. Acquire: the block that arrives last sees the
  // results of all others without another load.
  arrivals_.fetch_add(1, std::memory_order_acq_rel);
  return {*this, block};
}

void Exchange::delay(int block, uint64_t epoch) const {
  const unsigned ns =
      stress_delay_ns(static_cast<unsigned>(stress_.delay_seed), static_cast<unsigned>(block),
                      static_cast<unsigned>(epoch), 1000 * static_cast<unsigned>(stress_.delay_us));
  if (ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

void Exchange::enter(int block, Location at) {
  words_[block].location.store(pack(at), std::memory_order_relaxed);
}

Location Exchange::location(int block) const {
  return unpack(words_[block].location.load(std::memory_order_relaxed));
}

Fault Exchange::find_fault() const {
  Fault fault;
  for (int b = 0; b < blocks_; ++b) {
    const uint64_t epoch = words_[b].epoch.load(std::memory_order_relaxed);
    if (fault.block >= 0 && epoch >= fault.epoch_seen) continue;
    fault.block = b;
    fault.epoch_seen = epoch;
  }
  fault.epoch_expected = fault.epoch_seen + 1;
  fault.at = location(fault.block);
  for (int b = 0; b < blocks_; ++b) {
    fault.waiting += words_[b].epoch.load(std::memory_order_relaxed) >= fault.epoch_expected;
  }
  return fault;
}

void Exchange::begin_launch() {
  for (int b = 0; b < blocks_; ++b) words_[b].location.store(0, std::memory_order_relaxed);
}

Standstill Exchange::standstill(int position, int layers, bool lm_head) const {
  Standstill s;
  s.grid = blocks_;
  s.resident = resident_;
  s.counted = static_cast<int64_t>(arrivals());
  for (int b = 0; b < blocks_; ++b) {
    const uint64_t wanted = words_[b].wanted.load(std::memory_order_relaxed);
    Location at = location(b);
    BlockPlace place{
        .block = b,
        .begun = at.position >= 0,
        .waiting = wanted != kNever && static_cast<int64_t>(counted(wanted)) > s.counted,
        .epoch = static_cast<int64_t>(words_[b].epoch.load(std::memory_order_relaxed))};
    if (place.waiting) {
      at = next_after(at, layers, lm_head);
      s.wanted = std::max(s.wanted, place.epoch);
    }
    if (place.begun) {
      place.phase = phase_name(at.phase);
      place.layer = at.layer;
      place.step = at.position - position;
    }
    s.blocks.push_back(place);
  }
  return s;
}

void Exchange::disturb(Disturbance what, int block, int nth) {
  disturbance_ = what;
  disturbed_block_ = block;
  disturbed_epoch_ =
      words_[block].epoch.load(std::memory_order_relaxed) + static_cast<uint64_t>(nth);
}

void Exchange::begin_at(const Stress& stress) {
  stress_ = stress;
  restart();
}

void Exchange::restart() {
  const uint64_t epoch = stress_.count_from / static_cast<uint64_t>(blocks_);
  const uint64_t count = epoch * static_cast<uint64_t>(blocks_);
  for (int b = 0; b < blocks_; ++b) {
    words_[b].epoch.store(epoch, std::memory_order_relaxed);
    words_[b].wanted.store(count, std::memory_order_relaxed);
  }
  arrivals_.store(count, std::memory_order_relaxed);
  disturbed_block_ = -1;
  resident_ = blocks_;
}

}  // namespace mkbench::host_twin
