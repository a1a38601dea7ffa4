// ring's exchange words and fault word, as launches that stand still leave them, made by hand.
#include <cstring>
#include <vector>

#include "kernels/phase.h"
#include "kernels/ring/exchange_layout.h"
#include "kernels/ring/standstill.h"
#include "tests/support/catch2.h"

using namespace mkbench;
using namespace mkbench::ring;

namespace {

constexpr int kLayers = 28, kFirst = 40;

// Words in which every block has published `epoch`; a value's bits stand above the epoch's.
class Words {
 public:
  explicit Words(unsigned epoch) : bytes_(exchange_layout<Layout<0>>().bytes) {
    for (int b = 0; b < kBlocks; ++b) set(b, epoch, epoch);
  }
  void set(int block, unsigned qkv, unsigned swiglu) {
    // The words lie group by group: those of block 5 of the grid are the 81st.
    const int first = 32 * (block % 8 * 16 + block / 8);
    for (int i = 0; i < Layout<0>::kQkvRows; ++i)
      put(exchange_layout<Layout<0>>().qkv, first + i, qkv);
    for (int i = 0; i < Layout<0>::kUnits; ++i)
      put(exchange_layout<Layout<0>>().swiglu, first + i, swiglu);
  }
  StoodLaunch launch(FaultWord fault, bool ended) const {
    StoodLaunch stood;
    stood.fault = fault;
    stood.words = bytes_;
    stood.shape = kQwen3_0_6B;
    stood.shape.layers = kLayers;
    stood.position = kFirst;
    stood.ended = ended;
    return stood;
  }

 private:
  void put(size_t array, int index, unsigned epoch) {
    const unsigned word = 0x3f800000u | epoch;
    std::memcpy(bytes_.data() + array + 4 * static_cast<size_t>(index), &word, sizeof(word));
  }
  std::vector<char> bytes_;
};

FaultWord hang(Phase phase, int layer, int block, int step, unsigned expected, unsigned seen) {
  return pack_fault(kRaisedHang, static_cast<int>(phase), layer, block, kFirst + step, expected,
                    seen);
}

// Epochs of 8 bits are 1 .. 255, then 1 again.
unsigned bits(int64_t epoch) { return static_cast<unsigned>((epoch - 1) % 255 + 1); }

}  // namespace

TEST_CASE("a block of ring that never comes back is named by its words", "[ring]") {
  constexpr int kStep = 11;
  constexpr int64_t kEpoch = kStep * kLayers + 13;  // 321, 66 in 8 bits
  Words words(bits((kStep + 1) * kLayers));         // the others have gone on to the token's end
  words.set(16, bits(kEpoch - 1), bits(kEpoch - 1));
  const FaultWord fault = hang(Phase::kAttention, 12, 57, kStep, bits(kEpoch), bits(kEpoch - 1));
  const Standstill s = standstill(words.launch(fault, false));
  const HangFinding found = explain(s);
  CHECK(found.cause == HangCause::kBlockDelayed);
  CHECK(found.waiter == 57);
  CHECK(found.awaited == std::vector<int>{16});
  CHECK(
      found.text ==
      "block 57 waits in phase attention of layer 12, step 11, for block 16, whose last arrival is "
      "epoch 320 of 321");
  CHECK(s.exchange.size() == 2 * kBlocks);
  CHECK(s.fault_word.size() == 18);
  CHECK(explain(standstill(words.launch(fault, true))).cause == HangCause::kArrivalLost);
}

TEST_CASE("a block of ring that withholds one kind of word, and one that lacks a sum", "[ring]") {
  Words words(28);
  words.set(5, 0, 28);  // its q, k, v were never published
  const FaultWord first = hang(Phase::kAttention, 0, 13, 0, 1, 0);
  const HangFinding lost = explain(standstill(words.launch(first, true)));
  CHECK(lost.cause == HangCause::kArrivalLost);
  CHECK(lost.awaited == std::vector<int>{5});
  CHECK(lost.text.find("whose last arrival is epoch 0 of 1") != std::string::npos);
  // It has published all of layer 7 and stands before its share of down's sum.
  Words sums(28);
  sums.set(90, 8, 8);
  const FaultWord sum = hang(Phase::kQkv, 8, 2, 0, kGroups, kGroups - 1);
  const HangFinding stands = explain(standstill(sums.launch(sum, false)));
  CHECK(stands.cause == HangCause::kBlockDelayed);
  CHECK(stands.awaited == std::vector<int>{90});
}

TEST_CASE("ring's words that were reset inside the launch are told from late ones", "[ring]") {
  const Words words(28);  // what the launch did after its fault hides the reset
  const FaultWord of_word = hang(Phase::kDown, 3, 9, 0, 4, 0);
  CHECK(explain(standstill(words.launch(of_word, true))).cause == HangCause::kWordsReset);
  const FaultWord of_sum = hang(Phase::kGateUp, 3, 9, 0, kGroups, 4080);
  CHECK(explain(standstill(words.launch(of_sum, true))).cause == HangCause::kWordsReset);
  const FaultWord late = hang(Phase::kDown, 3, 9, 0, 4, 3);
  CHECK(explain(standstill(words.launch(late, true))).cause == HangCause::kUnknown);
}

TEST_CASE("without a fault word the blocks that are behind are named, and no waiter", "[ring]") {
  Words words(9);
  words.set(77, 9, 8);
  const HangFinding found = explain(standstill(words.launch(0, false)));
  CHECK(found.waiter == -1);
  CHECK(found.awaited == std::vector<int>{77});
  CHECK(explain(standstill(Words(9).launch(0, false))).cause == HangCause::kUnknown);
}
