// What explains a launch that stands still, from what is known of its blocks.
#include "references/standstill.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

// Blocks that have all arrived at `epoch` and wait before o_proj of layer 12, step 3.
Standstill all_waiting(int grid, int64_t epoch) {
  Standstill s;
  s.grid = s.resident = grid;
  s.wanted = epoch;
  s.counted = epoch * grid;
  for (int b = 0; b < grid; ++b) {
    BlockPlace place;
    place.block = b;
    place.waiting = true;
    place.phase = "o_proj";
    place.layer = 12;
    place.step = 3;
    place.epoch = epoch;
    s.blocks.push_back(place);
  }
  return s;
}

BlockPlace& make_late(Standstill& s, size_t block) {
  BlockPlace& late = s.blocks[block];
  late.waiting = false;
  late.epoch -= 1;
  s.counted -= 1;
  return late;
}

}  // namespace

TEST_CASE("a block that is behind and waits for nothing is delayed", "[standstill]") {
  Standstill s = all_waiting(132, 336);
  BlockPlace& late = make_late(s, 16);
  late.phase = "attention";
  const HangFinding found = explain(s);
  CHECK(found.cause == HangCause::kBlockDelayed);
  CHECK(found.waiter == 0);
  CHECK(found.awaited == std::vector<int>{16});
  CHECK(found.text ==
        "block 0 waits in phase o_proj of layer 12, step 3, for block 16, whose last arrival is "
        "epoch "
        "335 of 336: it is still in phase attention of layer 12, step 3");
  // Where the engine does not know the place, the line ends with the epoch; block 0 may be the late one.
  late.phase.clear();
  make_late(s, 0).phase.clear();
  CHECK(explain(s).awaited == std::vector<int>{0, 16});
  CHECK(
      explain(s).text ==
      "block 1 waits in phase o_proj of layer 12, step 3, for blocks 0, 16, whose last arrival is "
      "epoch 335 of 336");
}

TEST_CASE("a block that went on to its end, uncounted, has lost an arrival", "[standstill]") {
  Standstill s = all_waiting(8, 20);
  make_late(s, 5).phase.clear();
  s.ended = true;
  CHECK(explain(s).cause == HangCause::kArrivalLost);
  CHECK(explain(s).awaited == std::vector<int>{5});
}

TEST_CASE("a counter that lacks what all blocks have added has lost an arrival", "[standstill]") {
  Standstill s = all_waiting(8, 20);
  s.counted = 159;
  const HangFinding found = explain(s);
  CHECK(found.cause == HangCause::kArrivalLost);
  CHECK(found.awaited.empty());
  CHECK(found.text ==
        "block 0 waits in phase o_proj of layer 12, step 3, for an arrival that was lost: all 8 "
        "blocks "
        "have arrived at epoch 20, the counter holds 159 of 160 arrivals");
}

TEST_CASE("a count below what blocks have passed was reset", "[standstill]") {
  Standstill s = all_waiting(8, 20);
  s.counted = 151;
  CHECK(explain(s).cause == HangCause::kWordsReset);
  s.counted = 152;  // the 19 epochs that all have passed: then each of 8 arrivals is lost
  CHECK(explain(s).cause == HangCause::kArrivalLost);
  s.counted = -1;
  s.words_went_back = true;
  CHECK(explain(s).cause == HangCause::kWordsReset);
}

TEST_CASE("blocks that have not begun, or cannot, are not resident", "[standstill]") {
  Standstill s = all_waiting(8, 1);
  s.blocks[6].begun = s.blocks[7].begun = false;
  s.resident = 6;
  s.counted = 6;
  const HangFinding found = explain(s);
  CHECK(found.cause == HangCause::kNotResident);
  CHECK(found.awaited == std::vector<int>{6, 7});
  CHECK(found.text ==
        "block 0 waits in phase o_proj of layer 12, step 3, for blocks 6 to 7, which have not "
        "begun: 6 "
        "of the grid's 8 blocks are on the device at a time");
  for (BlockPlace& b : s.blocks) b.begun = true;  // where the engine cannot tell who has begun
  CHECK(explain(s).cause == HangCause::kNotResident);
}

TEST_CASE("what explains nothing says so", "[standstill]") {
  const Standstill s = all_waiting(8, 20);
  CHECK(explain(s).cause == HangCause::kUnknown);
  CHECK(explain(s).text.find("what is missing is not known") != std::string::npos);
  CHECK(explain({}).cause == HangCause::kUnknown);
  CHECK(explain({}).waiter == -1);
}
