// What an engine knows of a hung launch, and what explains it: which block waits where, for which
// other block, and why that block does not arrive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

// Why a launch hangs. All of these causes have happened in public kernels.
enum class HangCause {
  kUnknown,
  kBlockDelayed,  // a block is at work, or stuck, outside of every wait
  kArrivalLost,   // a block has gone on, but its arrival was lost
  kNotResident,   // blocks have not begun: the device holds fewer at a time than the grid has
  kWordsReset,    // words of the exchange were reset during the launch
};
constexpr std::string_view enum_text(HangCause cause) {
  constexpr std::string_view kTexts[] = {"unknown", "block_delayed", "arrival_lost", "not_resident",
                                         "words_reset"};
  return kTexts[static_cast<size_t>(cause)];
}
inline std::vector<HangCause> enum_values(Tag<HangCause>) {
  using enum HangCause;
  return {kUnknown, kBlockDelayed, kArrivalLost, kNotResident, kWordsReset};
}

// What is known of one block. Numbers are -1 where the engine does not know them.
struct BlockPlace {
  int block = 0;
  bool begun = true;  // false: the block has not begun in this launch
  bool waiting =
      false;  // true: the block waits for others before `phase`; false: it works in `phase`
  std::string phase{};  // a name of kernels/phase.h; empty: not known
  int layer = -1;       // -1 outside of the layers
  int step = -1;        // decode step within the launch, from 0
  int64_t epoch = -1;   // number of the block's last arrival, counted like Standstill::wanted
  static void fields(auto& v) {
    list_fields(v, "block", &BlockPlace::block, "begun", &BlockPlace::begun, "waiting",
                &BlockPlace::waiting, "phase", &BlockPlace::phase, "layer", &BlockPlace::layer,
                "step", &BlockPlace::step, "epoch", &BlockPlace::epoch);
  }
};

// A word of the memory through which blocks signal each other, with the value found there.
struct ExchangeWord {
  std::string name;
  int64_t value = 0;
  static void fields(auto& v) {
    list_fields(v, "name", &ExchangeWord::name, "value", &ExchangeWord::value);
  }
};

struct Standstill {
  int grid = 0;          // blocks of the launch
  int resident = 0;      // blocks that the device holds at a time; 0: not known
  int64_t wanted = -1;   // the epoch that the waiting blocks wait for
  int64_t counted = -1;  // arrivals in the one counter of all blocks; -1: the exchange has none
  bool words_went_back = false;  // a word holds less than a block has read there before
  bool ended = false;            // the waits have timed out and the launch has ended since
  std::string fault_word{};      // the kernel's fault word, hexadecimal; empty: none
  std::vector<BlockPlace> blocks{};
  std::vector<ExchangeWord> exchange{};
  static void fields(auto& v) {
    using S = Standstill;
    list_fields(v, "grid", &S::grid, "resident", &S::resident, "wanted", &S::wanted, "counted",
                &S::counted, "words_went_back", &S::words_went_back, "ended", &S::ended,
                "fault_word", &S::fault_word, "blocks", &S::blocks, "exchange", &S::exchange);
  }
};

struct HangFinding {
  HangCause cause = HangCause::kUnknown;
  int waiter = -1;             // a block that waits; -1: none is known to wait
  std::vector<int> awaited{};  // the blocks that it waits for; empty: not known
  // "block 57 waits in phase o_proj of layer 12, step 3, for block 16, whose last arrival is epoch
  // 335 of 336: ..."
  std::string text{};
  static void fields(auto& v) {
    list_fields(v, "cause", &HangFinding::cause, "waiter", &HangFinding::waiter, "awaited",
                &HangFinding::awaited, "text", &HangFinding::text);
  }
};

// Finds the cause of a hang. Never throws.
HangFinding explain(const Standstill& s);

}  // namespace mkbench
