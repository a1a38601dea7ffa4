// The host twin's machinery without a model: exchange, scheduler, watchdog, KV cache, inner
// loops.
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/host_twin/exchange.h"
#include "kernels/host_twin/scheduler.h"
#include "kernels/host_twin/vector_ops.h"
#include "kernels/host_twin/workspace.h"
#include "tests/support/catch2.h"
#include "tests/support/random_model.h"

namespace mkbench::host_twin {
namespace {

constexpr int kStallMs = 60000;  // no test may reach it, even on a loaded machine

// Memory that the blocks of a test share: each writes its own slot, and all read all slots after
// the exchange.
struct Board {
  std::vector<int> slots;
  std::vector<int> violations;  // of each block: slots that it saw in a state of another round
  std::vector<int> finished;
  explicit Board(int blocks) : slots(blocks), violations(blocks), finished(blocks) {}
};

// Counts its instances, so that a test sees whether an abandoned coroutine was destroyed.
struct Guard {
  explicit Guard(int* count) : count_(count) { ++*count_; }
  ~Guard() { --*count_; }
  int* count_;
};

BlockTask rounds(Board& board, Exchange& exchange, int block, int count) {
  for (int round = 1; round <= count; ++round) {
    board.slots[block] = round;
    co_await exchange.arrive(block);
    for (const int slot : board.slots) board.violations[block] += slot != round;
    // No block may write the next round before all have read this one.
    co_await exchange.arrive(block);
  }
  board.finished[block] = 1;
}

BlockTask guarded(Exchange& exchange, int block, int* living, bool throws) {
  const Guard guard(living);
  exchange.enter(block, {Phase::kGateUp, 5, 77});
  co_await exchange.arrive(block);
  if (throws) throw std::runtime_error("thrown by a block");
  co_await exchange.arrive(block);
}

TEST_CASE("an exchange lets nobody pass before all have arrived", "[exchange]") {
  for (const int blocks : {1, 2, 3, 16, 128}) {
    for (const int threads : {1, 2, 4}) {
      Scheduler scheduler(threads);
      Exchange exchange(blocks);
      Board board(blocks);
      // Several launches on one counter: epochs keep growing from launch to launch.
      constexpr int kLaunches = 3, kRounds = 40;
      for (int launch = 0; launch < kLaunches; ++launch) {
        std::vector<BlockTask> tasks;
        for (int b = 0; b < blocks; ++b) tasks.push_back(rounds(board, exchange, b, kRounds));
        REQUIRE_FALSE(scheduler.run(tasks, exchange, kStallMs).has_value());
      }
      INFO("blocks " << blocks << ", threads " << threads);
      REQUIRE(board.violations == std::vector<int>(blocks, 0));
      REQUIRE(board.finished == std::vector<int>(blocks, 1));
      REQUIRE(exchange.arrivals() == static_cast<uint64_t>(2 * kLaunches * kRounds * blocks));
    }
  }
}

TEST_CASE("a block that never arrives is named, and abandoned coroutines are destroyed",
          "[exchange]") {
  for (const int threads : {1, 2}) {
    Scheduler scheduler(threads);
    Exchange exchange(6);
    exchange.stall(4, 2);
    int living = 0;
    {
      std::vector<BlockTask> tasks;
      std::vector<int> counts(6);
      for (int b = 0; b < 6; ++b) tasks.push_back(guarded(exchange, b, &counts[b], false));
      const auto fault = scheduler.run(tasks, exchange, 50);
      for (const int n : counts) living += n;
      REQUIRE(living == 6);
      REQUIRE(fault.has_value());
      REQUIRE(fault->block == 4);
      REQUIRE(fault->at.phase == Phase::kGateUp);
      REQUIRE(fault->at.layer == 5);
      REQUIRE(fault->at.position == 77);
      REQUIRE(fault->epoch_expected == 2);
      REQUIRE(fault->epoch_seen == 1);
      REQUIRE(fault->waiting == 5);
      REQUIRE(to_string(*fault) ==
              "block 4 did not arrive after phase gate_up, layer 5, position 77 "
              "(epoch expected 2, seen 1; blocks waiting 5)");
      tasks.clear();
      living = 0;
      for (const int n : counts) living += n;
      REQUIRE(living == 0);
    }
    // The next launch runs on these threads and the restarted exchange.
    exchange.restart();
    Board board(6);
    std::vector<BlockTask> tasks;
    for (int b = 0; b < 6; ++b) tasks.push_back(rounds(board, exchange, b, 10));
    REQUIRE_FALSE(scheduler.run(tasks, exchange, kStallMs).has_value());
    REQUIRE(board.violations == std::vector<int>(6, 0));
  }
}

TEST_CASE("what a block throws comes out of run(), not a hang", "[exchange]") {
  for (const int threads : {1, 2}) {
    Scheduler scheduler(threads);
    Exchange exchange(4);
    std::vector<int> living(4);
    std::vector<BlockTask> tasks;
    for (int b = 0; b < 4; ++b) tasks.push_back(guarded(exchange, b, &living[b], b == 1));
    REQUIRE_THROWS_WITH(scheduler.run(tasks, exchange, kStallMs), "thrown by a block");
  }
}

TEST_CASE("a location survives its packing", "[exchange]") {
  Exchange exchange(1);
  REQUIRE(exchange.location(0).position == -1);
  for (const Location at : {Location{Phase::kEmbed, -1, 0}, Location{Phase::kDown, 27, 40959},
                            Location{Phase::kLmHead, -1, 2147483646}}) {
    exchange.enter(0, at);
    REQUIRE(exchange.location(0).phase == at.phase);
    REQUIRE(exchange.location(0).layer == at.layer);
    REQUIRE(exchange.location(0).position == at.position);
  }
}

TEST_CASE("the cache: poison and checksum begin and end at their position", "[cache]") {
  constexpr int kContext = 5;
  for (int from = 0; from <= kContext; ++from) {
    KvCache cache(testing::kOdd, kContext);
    const auto each = [&](const auto& work) {
      for (int layer = 0; layer < testing::kOdd.layers; ++layer) {
        for (int i = 0; i < kContext * testing::kOdd.kv_heads * testing::kOdd.head_dim; ++i)
          work(i / testing::kOdd.head_dim % kContext, cache.k(layer, 0, 0)[i],
               cache.v(layer, 0, 0)[i]);
      }
    };
    float next = 0;
    each([&](int, Bf16& k, Bf16& v) { k = to_bf16(++next), v = to_bf16(-next); });
    const uint64_t below = cache.checksum(from), all = cache.checksum(kContext);
    cache.poison(from);
    each([&](int position, Bf16& k, Bf16& v) {
      REQUIRE(std::isnan(to_float(k)) == (position >= from));
      REQUIRE(std::isnan(to_float(v)) == (position >= from));
    });
    REQUIRE(cache.checksum(from) == below);
    REQUIRE((cache.checksum(kContext) == all) == (from == kContext));
  }
}

TEST_CASE("inner loops agree with double precision for every tail length", "[vector_ops]") {
  for (const VectorOps* ops : {&vector_ops(), &portable_vector_ops()}) {
    for (const int cols : {1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 128, 384}) {
      constexpr int kRows = 5;
      std::vector<Bf16> w(static_cast<size_t>(kRows) * cols + 1);
      std::vector<float> x(cols), p(kRows), y(kRows), acc(cols, 0.5f);
      for (size_t i = 0; i < w.size(); ++i) w[i] = to_bf16(testing::normal_at(1, i));
      for (int c = 0; c < cols; ++c) x[c] = testing::normal_at(2, c);
      for (int r = 0; r < kRows; ++r) p[r] = testing::normal_at(3, r);
      const Bf16* rows = w.data() + 1;  // at an odd multiple of two bytes, as in a mapped file
      ops->matvec(rows, kRows, cols, x.data(), y.data());
      ops->weighted_sum(rows, kRows, cols, p.data(), acc.data());
      INFO("cols " << cols);
      for (int r = 0; r < kRows; ++r) {
        double sum = 0, size = 0;
        for (int c = 0; c < cols; ++c) {
          const double term = static_cast<double>(to_float(rows[r * cols + c])) * x[c];
          sum += term;
          size += std::abs(term);
        }
        REQUIRE(std::abs(y[r] - sum) <= 1e-6 * size);
      }
      for (int c = 0; c < cols; ++c) {
        double sum = 0.5, size = 0.5;
        for (int r = 0; r < kRows; ++r) {
          const double term = static_cast<double>(to_float(rows[r * cols + c])) * p[r];
          sum += term;
          size += std::abs(term);
        }
        REQUIRE(std::abs(acc[c] - sum) <= 1e-6 * size);
      }
    }
  }
}

}  // namespace
}  // namespace mkbench::host_twin
