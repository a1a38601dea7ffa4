#include "kernels/ring/standstill.h"

#include <algorithm>
#include <cstring>

#include "kernels/phase.h"
#include "kernels/ring/exchange_layout.h"

namespace mkbench::ring {
namespace {

constexpr int64_t kEpochs = 255;  // an epoch of 8 bits is 1 .. 255, then 1 again

int64_t low_bits(int64_t epoch) { return epoch == 0 ? 0 : (epoch - 1) % kEpochs + 1; }

// The latest epoch up to `newest` whose low bits are `in_word`.
int64_t whole_epoch(int64_t in_word, int64_t newest) {
  if (in_word == 0) return 0;
  const int64_t back = (low_bits(newest) - in_word + kEpochs) % kEpochs;
  return std::max<int64_t>(newest - back, 0);
}

// The oldest epoch of `count` neighbouring words.
int64_t oldest_epoch(std::span<const char> words, size_t from, int count, int64_t newest) {
  int64_t oldest = newest;
  for (int i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words.data() + from + 4 * static_cast<size_t>(i), sizeof(word));
    oldest = std::min(oldest, whole_epoch(word & 0xff, newest));
  }
  return oldest;
}

// Whether the waiter saw a value that shows a reset of its word: more than 8 arrivals (readings are
// subtracted, so a reset shows as a large number), or no epoch in a word that had one before.
bool went_back(const KernelStatus& f, int layers) {
  const auto phase = static_cast<Phase>(f.phase);
  const bool sum = phase == Phase::kQkv || phase == Phase::kGateUp;
  if (sum) return f.seen > f.expected;
  // Words of other phases are not written in every layer.
  const bool each_layer = phase == Phase::kAttention || phase == Phase::kDown;
  return each_layer && f.layer < layers && f.expected > 1 && f.seen == 0;
}

std::string hexadecimal(FaultWord word) {
  std::string text = "0x";
  for (int bit = 60; bit >= 0; bit -= 4) text += "0123456789abcdef"[word >> bit & 0xf];
  return text;
}

// Words per block: q, k and v; SwiGLU; and the distance between the SwiGLU words of two neighbouring blocks.
struct BlockWords {
  int qkv, swiglu, swiglu_stride;
};

// Fills in s.exchange and s.blocks, in the order of blockIdx (as the fault word counts blocks), with epochs up
// to `newest`. Returns the largest epoch of a block.
int64_t read_blocks(const StoodLaunch& launch, int64_t newest, Standstill& s) {
  const ExchangeLayout at = exchange_layout(launch.shape);
  const BlockWords words = with_layout(launch.shape, []<typename L>(L) {
    return BlockWords{L::kQkvRows, L::kUnits, L::kSwigluStride};
  });
  int64_t most = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const int place_of_words = place_of(b);
    const size_t qkv_at = 4 * static_cast<size_t>(place_of_words * words.qkv);
    const size_t swiglu_at = 4 * static_cast<size_t>(place_of_words * words.swiglu_stride);
    const int64_t qkv = oldest_epoch(launch.words, at.qkv + qkv_at, words.qkv, newest);
    const int64_t swiglu = oldest_epoch(launch.words, at.swiglu + swiglu_at, words.swiglu, newest);
    s.exchange.push_back({"qkv of block " + std::to_string(b), qkv});
    s.exchange.push_back({"swiglu of block " + std::to_string(b), swiglu});
    BlockPlace place;
    place.block = b;
    place.epoch = std::min(qkv, swiglu);
    most = std::max(most, place.epoch);
    s.blocks.push_back(place);
  }
  return most;
}

}  // namespace

Standstill standstill(const StoodLaunch& launch) {
  Standstill s;
  s.grid = kBlocks;
  s.ended = launch.ended;
  KernelStatus f{};
  const bool raised = launch.fault != 0;
  if (raised) {
    unpack_fault(launch.fault, f);
    s.fault_word = hexadecimal(launch.fault);
  }
  const bool own_ring = raised && f.layer == kOwnRing;
  const bool in_layer = raised && f.layer < launch.shape.layers;
  const int step = raised ? f.position - launch.position : launch.step;
  s.words_went_back = raised && !own_ring && went_back(f, launch.shape.layers);
  // No block is beyond the step of the fault: all blocks leave the launch when that step ends.
  const int64_t newest = int64_t{step + 1} * launch.shape.layers;
  const int64_t most = read_blocks(launch, newest, s);
  // A layer's q, k and v need the layer before.
  const bool before = static_cast<Phase>(f.phase) == Phase::kQkv;
  s.wanted = in_layer ? newest - launch.shape.layers + f.layer + (before ? 0 : 1) : most;
  const bool behind = std::any_of(s.blocks.begin(), s.blocks.end(),
                                  [&](const BlockPlace& b) { return b.epoch < s.wanted; });
  if (!behind) s.wanted = most;  // then the blocks behind the newest epoch stand still
  if (!raised) return s;
  BlockPlace& waiter = s.blocks[static_cast<size_t>(f.block) % kBlocks];
  waiter.waiting = true;
  waiter.phase = own_ring ? "" : phase_name(static_cast<Phase>(f.phase));
  waiter.layer = in_layer ? f.layer : -1;
  waiter.step = step;
  return s;
}

}  // namespace mkbench::ring
