// The ring's barriers tell one round (use) of a slot from the next by a parity bit alone. This is a
// model of loader, copies and warps on the host, in random order but with the waits and arrivals of
// the ring megakernel. It checks that no wait is passed by the arrival of an older round's copy.
#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/ring/params.h"
#include "tests/support/catch2.h"

namespace mkbench::ring {
namespace {

using Held = Layout<kHeldRow>;
constexpr int kSmallRingSlots = ring_slots<Held>(12);
static_assert(ring_slots<Held>(9) == kMostRingSlots && kSmallRingSlots == 3);

// How the warps read a run of slots:
//   kWeights  every warp waits for all slots at once
//   kKeys     one tile for each quarter of the warps; all warps take K before any takes V, because
//             they hand each other the exponentials
//   kValues   every warp waits for the slots one by one
//   kHead     one slot, which half of the warps read
enum class Kind { kWeights, kKeys, kValues, kHead };
struct Fetch {
  int first, count;
  Kind kind;
  bool head_odd;
};

// The slots of one launch, in the order of loader and consumers.
struct Plan {
  std::vector<Fetch> fetches;
  std::vector<bool> head_paced;  // for each slot: the pace of the LM head holds

  void add(int count, bool paced, Kind kind = Kind::kWeights, bool odd = false) {
    fetches.push_back({static_cast<int>(head_paced.size()), count, kind, odd});
    head_paced.insert(head_paced.end(), static_cast<size_t>(count), paced);
  }
};

// Two steps. `shift` single slots come first, so that steps begin at any slot of the ring;
// attention has two turns, of `tiles` tiles and of one.
Plan make_plan(int head_slots, int shift, int tiles) {
  Plan plan;
  for (int i = 0; i < shift; ++i) plan.add(1, false);
  for (int step = 0; step < 2; ++step) {
    plan.add(Held::kQkvSlots, false);
    for (const int count : {tiles, 1}) {
      plan.add(count, false, Kind::kKeys);
      plan.add(count, false, Kind::kValues);
    }
    for (const int count : {Held::kOutSlots, Held::kGateUpSlots}) plan.add(count, false);
    plan.add(Held::kDownSlots, true);
    for (int k = 0; k < head_slots; ++k) plan.add(1, true, Kind::kHead, k % 2 != 0);
  }
  plan.add(Held::kQkvSlots, false);
  return plan;
}

// An mbarrier after `completed` phases. passes() sees only a parity, as the hardware does.
struct Barrier {
  int completed = 0, missing = 0;
  bool passes(int parity) const { return completed % 2 != parity; }
};

class RingModel {
 public:
  RingModel(int slots, int layer_copies, int head_copies, const Plan& plan, uint64_t seed)
      : slots_(slots),
        layer_copies_(layer_copies),
        head_copies_(head_copies),
        plan_(plan),
        random_(seed),
        newest_first_(0.5 + 0.25 * static_cast<double>(seed % 3)),
        full_(static_cast<size_t>(slots)),
        empty_(static_cast<size_t>(slots)) {
    for (Barrier& b : empty_) b.missing = kConsumerWarps;
  }

  // Returns what went wrong first, or nothing.
  std::string run() {
    const int total = static_cast<int>(plan_.head_paced.size());
    size_t racer = 0;
    for (int idle = 0; violation_.empty(); ++idle) {
      const bool done = std::all_of(warps_.begin(), warps_.end(),
                                    [&](const Warp& w) { return w.fetch == plan_.fetches.size(); });
      if (done) return issued_ == total ? "" : "slots were never loaded";
      if (idle > 100000) return "nobody gets on";
      if (random_() % 64 == 0) racer = random_() % warps_.size();
      const unsigned dice = random_() % 8;
      bool moved = false;
      if (dice < 2) {
        moved = issued_ < total && load();
      } else if (dice == 2) {
        moved = arrive();
      } else {
        moved = advance(dice < 5 ? racer : random_() % warps_.size());
      }
      if (moved) idle = 0;
    }
    return violation_;
  }

 private:
  struct Warp {
    size_t fetch = 0;
    int awaited = 0;  // slots of the fetch that the warp has waited for one by one
    bool looked = false;
  };

  Barrier& at(std::vector<Barrier>& barriers, int slot) {
    return barriers[static_cast<size_t>(slot % slots_)];
  }
  void blame(const std::string& who, int slot) {
    if (violation_.empty()) violation_ = who + " passed the wait for slot " + std::to_string(slot);
  }

  // Tries to issue the next copy: it needs an empty slot and a place among the copies in flight.
  bool load() {
    const int round = issued_ / slots_;
    const Barrier& room = at(empty_, issued_);
    if (!room.passes((round + 1) % 2)) return false;
    if (room.completed != round) blame("loader, for room,", issued_);
    // The loader waits only for the copy so many slots before this one: where fewer copies are
    // allowed than before, some are never waited for.
    const bool paced = plan_.head_paced[static_cast<size_t>(issued_)];
    const int oldest = issued_ - (paced ? head_copies_ : layer_copies_);
    if (oldest >= 0) {
      const Barrier& copied = at(full_, oldest);
      if (!copied.passes(oldest / slots_ % 2)) return false;
      if (copied.completed != oldest / slots_ + 1) blame("loader, for a copy,", oldest);
    }
    in_flight_.push_back(issued_++);
    return true;
  }

  // A copy arrives: the newest with probability `newest_first_`, so that old ones come late, else a
  // random one.
  bool arrive() {
    if (in_flight_.empty()) return false;
    const bool newest = std::uniform_real_distribution<>()(random_) < newest_first_;
    const size_t i = newest ? in_flight_.size() - 1 : random_() % in_flight_.size();
    ++at(full_, in_flight_[i]).completed;
    in_flight_.erase(in_flight_.begin() + static_cast<int64_t>(i));
    return true;
  }

  bool passes(size_t warp, int slot, bool blamed) {
    const Barrier& b = at(full_, slot);
    if (!b.passes(slot / slots_ % 2)) return false;
    if (blamed && b.completed != slot / slots_ + 1) blame("warp " + std::to_string(warp), slot);
    return true;
  }

  void release(int slot, int shares) {
    Barrier& b = at(empty_, slot);
    b.missing -= shares;
    if (b.missing < 0) violation_ = "more than 16 shares of slot " + std::to_string(slot);
    if (b.missing > 0) return;
    b.missing = kConsumerWarps;
    ++b.completed;
  }

  bool take_keys(size_t index, const Fetch& f) {
    const int mine = static_cast<int>(index) / 4;
    if (mine < f.count) {
      if (!passes(index, f.first + mine, true)) return false;
      release(f.first + mine, 4);
    }
    ++warps_[index].fetch;
    return true;
  }

  bool take_values(size_t index, const Fetch& f) {
    Warp& w = warps_[index];
    const bool all_here = std::all_of(warps_.begin(), warps_.end(),
                                      [&](const Warp& other) { return other.fetch >= w.fetch; });
    if (!all_here || !passes(index, f.first + w.awaited, true)) return false;
    release(f.first + w.awaited, 1);
    if (++w.awaited == f.count) w = {w.fetch + 1, 0, false};
    return true;
  }

  bool advance(size_t index) {
    Warp& w = warps_[index];
    if (w.fetch == plan_.fetches.size()) return false;
    const Fetch& f = plan_.fetches[w.fetch];
    const bool small = slots_ == kSmallRingSlots, odd = index / 4 % 2 != 0;
    const bool head = f.kind == Kind::kHead;
    if (head && !small && odd != f.head_odd) {  // the other half's slot: skipped without a look
      ++w.fetch;
      return true;
    }
    if (f.kind == Kind::kKeys) return take_keys(index, f);
    if (f.kind == Kind::kValues) return take_values(index, f);
    const auto finish = [&] {
      for (int i = 0; i < f.count && !small; ++i) release(f.first + i, head ? 2 : 1);
      w = {w.fetch + 1, 0, false};
    };
    if (!w.looked && !small && !head) {  // looks at all slots at once
      w.looked = true;
      bool all = true;
      for (int i = 0; i < f.count; ++i) all = all && passes(index, f.first + i, false);
      if (!all) return true;
      for (int i = 0; i < f.count; ++i) passes(index, f.first + i, true);
      finish();
      return true;
    }
    if (!passes(index, f.first + w.awaited, true)) return false;
    if (small) release(f.first + w.awaited, 1);
    if (++w.awaited == f.count) finish();
    return true;
  }

  const int slots_, layer_copies_, head_copies_;
  const Plan& plan_;
  std::mt19937_64 random_;
  const double newest_first_;
  std::vector<Barrier> full_, empty_;
  std::array<Warp, kConsumerWarps> warps_{};
  std::vector<int> in_flight_;
  int issued_ = 0;  // next slot to fill
  std::string violation_;
};

// The first violation among `seeds` runs for every LM head of 1 to 40 slots, or nothing.
std::string search(int slots, int layer_copies, int head_copies, uint64_t seeds) {
  for (int head_slots = 1; head_slots <= 40; ++head_slots) {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const int shift = static_cast<int>((seed * 7 + static_cast<uint64_t>(head_slots)) % 22);
      const int tiles = slots == kSmallRingSlots ? 2 : 4;
      const Plan plan = make_plan(head_slots, shift, tiles);
      const std::string found =
          RingModel(slots, layer_copies, head_copies, plan, 1000 * seed + seed).run();
      if (!found.empty()) return found + ", " + std::to_string(head_slots) + " slots of LM head";
    }
  }
  return {};
}

// The most copies in flight while the LM head streams through the large ring (tuning.h).
constexpr int kMostHeadCopies = most_head_copies<Held>(9);
static_assert(skips_head_slots<Held>(9) && !skips_head_slots<Held>(12));

TEST_CASE("no wait of the large ring takes an older round for its own", "[ring]") {
  for (int layer_copies = 1; layer_copies < kMostRingSlots; ++layer_copies) {
    for (const int head_copies : {std::min(layer_copies, kMostHeadCopies), kMostHeadCopies}) {
      INFO(layer_copies << " copies in flight, in the LM head " << head_copies);
      REQUIRE(search(kMostRingSlots, layer_copies, head_copies, 3) == "");
    }
  }
  for (int head_copies = 1; head_copies <= kMostHeadCopies; ++head_copies) {
    INFO("in the LM head " << head_copies);
    REQUIRE(search(kMostRingSlots, kMostRingSlots - 1, head_copies, 3) == "");
  }
}

TEST_CASE("no wait of the small ring takes an older round for its own", "[ring]") {
  for (int copies = 1; copies < kSmallRingSlots; ++copies) {
    INFO(copies << " copies in flight");
    REQUIRE(search(kSmallRingSlots, copies, copies, 10) == "");
  }
}

// A warp does not look at slots that it skips. With copies in flight to all slots but one, the copy
// of a skipped slot may still be missing when the warp looks at that slot for its next round.
TEST_CASE("too many copies in flight in the LM head are found out", "[ring]") {
  const std::string found = search(kMostRingSlots, kMostRingSlots - 1, kMostRingSlots - 1, 30);
  INFO(found);
  REQUIRE_THAT(found, ContainsText("warp "));
  REQUIRE_THAT(found, ContainsText("passed the wait for slot"));
}

}  // namespace
}  // namespace mkbench::ring
