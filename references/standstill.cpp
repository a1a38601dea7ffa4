#include "references/standstill.h"

#include <algorithm>

namespace mkbench {
namespace {

// "block 16", "blocks 4 to 7", "blocks 1, 5 and 6 others"
std::string names(const std::vector<int>& blocks) {
  constexpr size_t kNamed = 4;
  if (blocks.empty()) return "no block";
  if (blocks.size() == 1) return "block " + std::to_string(blocks[0]);
  const bool range = blocks.back() - blocks.front() + 1 == static_cast<int>(blocks.size());
  if (range)
    return "blocks " + std::to_string(blocks.front()) + " to " + std::to_string(blocks.back());
  std::string text = "blocks ";
  for (size_t i = 0; i < std::min(blocks.size(), kNamed); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(blocks[i]);
  }
  if (blocks.size() > kNamed) text += " and " + std::to_string(blocks.size() - kNamed) + " others";
  return text;
}

// "phase o_proj of layer 12, step 3"
std::string place(const BlockPlace& b) {
  std::string text = b.phase.empty() ? "an unknown phase" : "phase " + b.phase;
  if (b.layer >= 0) text += " of layer " + std::to_string(b.layer);
  if (b.step >= 0) text += ", step " + std::to_string(b.step);
  return text;
}

std::string of_epoch(int64_t epoch, int64_t wanted) {
  return "epoch " + std::to_string(epoch) + " of " + std::to_string(wanted);
}

// The first waiting block that is not known to be behind s.wanted, else the first waiting block.
const BlockPlace* find_waiter(const Standstill& s) {
  const BlockPlace* any = nullptr;
  for (const BlockPlace& b : s.blocks) {
    if (!b.waiting) continue;
    if (b.epoch < 0 || b.epoch >= s.wanted) return &b;
    if (any == nullptr) any = &b;
  }
  return any;
}

template <typename Condition>
std::vector<int> blocks_that(const Standstill& s, Condition holds) {
  std::vector<int> found;
  for (const BlockPlace& b : s.blocks) {
    if (holds(b)) found.push_back(b.block);
  }
  return found;
}

// What is known of a block that is behind: its last arrival, and where it works.
std::string told_of(const Standstill& s, int block) {
  const auto at = std::find_if(s.blocks.begin(), s.blocks.end(),
                               [&](const BlockPlace& b) { return b.block == block; });
  std::string text;
  if (at->epoch >= 0) text = ", whose last arrival is " + of_epoch(at->epoch, s.wanted);
  if (!at->waiting && !at->phase.empty()) text += ": it is still in " + place(*at);
  return text;
}

std::string count_text(const Standstill& s) {
  return "the counter holds " + std::to_string(s.counted) + " of " +
         std::to_string(s.wanted * s.grid) + " arrivals";
}

}  // namespace

HangFinding explain(const Standstill& s) {
  HangFinding found;
  const BlockPlace* waiter = find_waiter(s);
  std::string begin = "no block is known to wait";
  if (waiter != nullptr) {
    found.waiter = waiter->block;
    begin = names({waiter->block}) + " waits in " + place(*waiter);
  }
  const auto absent = blocks_that(s, [](const BlockPlace& b) { return !b.begun; });
  const auto behind = blocks_that(s, [&](const BlockPlace& b) {
    return b.begun && (b.epoch >= 0 ? b.epoch < s.wanted : !b.waiting);
  });
  const int64_t passed = s.wanted > 0 ? (s.wanted - 1) * s.grid : -1;
  const bool too_large = s.resident > 0 && s.resident < s.grid;
  if (!absent.empty() || too_large) {
    found.cause = HangCause::kNotResident;
    found.awaited = absent;
    found.text = begin + ", for " +
                 (absent.empty() ? "blocks that have not begun" : names(absent)) +
                 (absent.size() == 1 ? ", which has not begun"
                  : absent.empty()   ? ""
                                     : ", which have not begun");
    if (s.resident > 0) {
      found.text += ": " + std::to_string(s.resident) + " of the grid's " + std::to_string(s.grid) +
                    " blocks are on the device at a time";
    }
  } else if (s.words_went_back || (s.counted >= 0 && s.counted < passed)) {
    found.cause = HangCause::kWordsReset;
    found.text = begin + ", for epoch " + std::to_string(s.wanted);
    if (s.counted >= 0) {
      found.text += ": " + count_text(s) + ", fewer than the " + std::to_string(passed) +
                    " of the epochs that blocks have passed";
    }
    found.text += ": words of the exchange were reset inside the launch";
  } else if (!behind.empty()) {
    found.cause = s.ended ? HangCause::kArrivalLost : HangCause::kBlockDelayed;
    found.awaited = behind;
    found.text = begin + ", for " + names(behind) + told_of(s, behind.front());
    if (s.ended) found.text += ": it has gone on to its end, and that arrival never came";
  } else if (s.counted >= 0 && s.wanted > 0 && s.counted < s.wanted * s.grid) {
    found.cause = HangCause::kArrivalLost;
    found.text = begin + ", for an arrival that was lost: all " + std::to_string(s.grid) +
                 " blocks have arrived at epoch " + std::to_string(s.wanted) + ", " + count_text(s);
  } else {
    found.text = begin;
    if (s.wanted >= 0) found.text += ", for epoch " + std::to_string(s.wanted);
    found.text += "; what is missing is not known";
  }
  return found;
}

}  // namespace mkbench
