#include "kernels/host_twin/exchange.h"

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

}  // namespace

std::string to_string(const Fault& fault) {
  std::string text = "block " + std::to_string(fault.block) + " did not arrive after phase " +
                     std::string(phase_name(fault.at.phase));
  if (fault.at.layer >= 0) text += ", layer " + std::to_string(fault.at.layer);
  return text + ", position " + std::to_string(fault.at.position) + " (epoch expected " +
         std::to_string(fault.epoch_expected) + ", seen " + std::to_string(fault.epoch_seen) +
         "; blocks waiting " + std::to_string(fault.waiting) + ")";
}

Exchange::Exchange(int blocks) : blocks_(blocks), words_(std::make_unique<Word[]>(blocks)) {}

Exchange::Wait Exchange::arrive(int block) {
  Word& word = words_[block];
  const uint64_t epoch = word.epoch.load(std::memory_order_relaxed) + 1;
  if (block == stall_block_ && epoch == stall_epoch_) {
    word.wanted.store(kNever, std::memory_order_relaxed);
    return {*this, block};
  }
  word.epoch.store(epoch, std::memory_order_relaxed);
  word.wanted.store(epoch * static_cast<uint64_t>(blocks_), std::memory_order_relaxed);
  // Release publishes the results of this block. Acquire: the block that arrives last sees the
  // results of all others without another load.
  arrivals_.fetch_add(1, std::memory_order_acq_rel);
  return {*this, block};
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

void Exchange::stall(int block, int nth) {
  stall_block_ = block;
  stall_epoch_ = words_[block].epoch.load(std::memory_order_relaxed) + static_cast<uint64_t>(nth);
}

void Exchange::restart() {
  for (int b = 0; b < blocks_; ++b) {
    words_[b].epoch.store(0, std::memory_order_relaxed);
    words_[b].wanted.store(0, std::memory_order_relaxed);
  }
  arrivals_.store(0, std::memory_order_relaxed);
  stall_block_ = -1;
}

}  // namespace mkbench::host_twin
