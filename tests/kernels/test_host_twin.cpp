// The host twin as an engine: contract, schedule, isolation, watchdog. test_host_twin_truth.cpp
// compares its numbers with the oracle.
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/host_twin/host_twin.h"
#include "kernels/phase.h"
#include "references/engine_maker.h"
#include "references/oracle.h"
#include "tests/support/catch2.h"
#include "tests/support/random_model.h"
#include "tests/support/thrown.h"

namespace mkbench {
extern const EngineMaker host_twin_maker;
namespace {

using testing::kOdd;
using testing::Thrown;
using testing::thrown_by;
ModelWeights odd_model() {
  static const ModelWeights w = testing::random_model(kOdd, {.tied = false, .max_positions = 300});
  return w;
}

std::unique_ptr<Engine> make(HostTwinOptions options = {}) {
  options.max_context = 300;
  return make_host_twin(odd_model(), options);
}

std::vector<int32_t> random_ids(int n, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) {
    ids.push_back(static_cast<int32_t>(splitmix64(seed + static_cast<uint64_t>(i)) % kOdd.vocab));
  }
  return ids;
}

struct Run {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // [n][vocab]
  bool operator==(const Run&) const = default;
};

Run prefill_and_decode(Engine& e, const std::vector<int32_t>& prompt, int n) {
  Run run;
  run.logits.resize(static_cast<size_t>(n) * kOdd.vocab);
  e.prefill(prompt);
  run.tokens = e.decode(n, nullptr, run.logits.data());
  return run;
}

template <class Work>
void require_bad_input(Work work, const std::string& part) {
  const Thrown thrown = thrown_by(work);
  INFO(thrown.message);
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  REQUIRE(thrown.says(part));
}

TEST_CASE("threads never change a bit, repeats neither", "[host_twin]") {
  const std::vector<int32_t> prompt = random_ids(40, 7);
  for (const int blocks : {1, 3, 8, 16, 128}) {
    const auto one = make({.blocks = blocks, .threads = 1});
    const auto two = make({.blocks = blocks, .threads = 2});
    const Run first = prefill_and_decode(*one, prompt, 60);
    INFO("blocks " << blocks);
    REQUIRE(prefill_and_decode(*two, prompt, 60) == first);
    for (int repeat = 0; repeat < 20; ++repeat) {
      two->reset();
      REQUIRE(prefill_and_decode(*two, prompt, 60) == first);
    }
  }
}

TEST_CASE("block counts agree: bit for bit with one split, in tokens with more", "[host_twin]") {
  const std::vector<int32_t> ids = random_ids(290, 8);
  const auto run = [&](int blocks) {
    Run r;
    r.logits.resize(ids.size() * kOdd.vocab);
    const auto e = make({.blocks = blocks, .threads = 1});
    e->set_pending(ids[0]);
    r.tokens = e->decode(static_cast<int>(ids.size()), ids.data(), r.logits.data());
    return r;
  };
  const Run one = run(1);
  for (const int blocks : {2, 3, 8, 16, 128}) {
    const Run other = run(blocks);
    INFO("blocks " << blocks);
    // Up to 32 positions there is one split, so no sum of the forward pass depends on the number of
    // blocks.
    const auto same = std::mismatch(one.logits.begin(), one.logits.end(), other.logits.begin());
    REQUIRE(same.first - one.logits.begin() >= 32 * kOdd.vocab);
    REQUIRE(other.tokens == one.tokens);
  }
}

TEST_CASE("prefill, decode, step and forced ids are one schedule", "[host_twin]") {
  std::vector<int32_t> ids = random_ids(130, 9);
  ids[49] = ids.back() = 0;  // an id like any other, also where it is pending
  const size_t n = ids.size();
  std::vector<float> forced(n * kOdd.vocab);
  const auto e = make();
  e->set_pending(ids[0]);
  const std::vector<int32_t> tokens = e->decode(static_cast<int>(n), ids.data(), forced.data());

  SECTION("every cache length from 1 to 130: prefill and one step") {
    for (size_t length = 1; length <= n; ++length) {
      const auto from = forced.begin() + static_cast<int64_t>(length - 1) * kOdd.vocab;
      e->reset();
      const Run run = prefill_and_decode(*e, {ids.begin(), ids.begin() + length}, 1);
      INFO("length " << length);
      REQUIRE(run.tokens[0] == tokens[length - 1]);
      REQUIRE(std::equal(run.logits.begin(), run.logits.end(), from));
      REQUIRE(e->position() == static_cast<int>(length));
    }
  }
  SECTION("step by step, and prefill in pieces that start with the pending id") {
    const auto other = make();
    for (size_t t = 0; t < n; ++t) REQUIRE(other->step(ids[t]) == tokens[t]);
    other->reset();
    other->prefill(std::span(ids).first(50));
    other->prefill(std::span(ids).subspan(50, 1));
    other->prefill(std::span(ids).subspan(51));
    REQUIRE(other->position() == static_cast<int>(n) - 1);
    REQUIRE(other->decode(1)[0] == tokens.back());
  }
  SECTION("decode goes on from its own last id, with or without logits") {
    const auto other = make();
    e->reset();
    const Run whole = prefill_and_decode(*e, ids, 64);
    other->prefill(ids);
    std::vector<int32_t> parts = other->decode(20);
    const std::vector<int32_t> rest = other->decode(44);
    parts.insert(parts.end(), rest.begin(), rest.end());
    REQUIRE(parts == whole.tokens);
    for (size_t t = 0; t < parts.size(); ++t) {
      const auto row = std::span(whole.logits).subspan(t * kOdd.vocab, kOdd.vocab);
      REQUIRE(argmax_lowest(row) == parts[t]);
    }
    REQUIRE(other->kv_row(2, 193) == e->kv_row(2, 193));
  }
}

TEST_CASE("launches, times, capabilities and localisers", "[host_twin]") {
  const auto e = make();
  REQUIRE(e->capabilities().name == "host-twin");
  REQUIRE(e->capabilities().device == "cpu");
  REQUIRE(e->capabilities().max_context == 300);
  REQUIRE(e->capabilities().one_launch);
  REQUIRE(e->launch_count() == 0);
  REQUIRE_FALSE(e->hidden(0).has_value());
  e->prefill(random_ids(9, 3));
  REQUIRE(e->launch_count() == 1);
  e->decode(5);
  REQUIRE(e->launch_count() == 2);
  REQUIRE(e->position() == 13);
  const DecodeTimes times = e->last_times();
  REQUIRE(times.per_token_ms.size() == 5);
  double sum_ms = 0;
  for (const double ms : times.per_token_ms) {
    REQUIRE(ms > 0);
    sum_ms += ms;
  }
  REQUIRE(sum_ms <= times.host_ms);
  REQUIRE(e->hidden(2)->size() == kOdd.hidden);
  for (const int layer : {-1, 3}) REQUIRE_FALSE(e->hidden(layer).has_value());
  const std::vector<float> newest = e->kv_row(0, 12).value();
  REQUIRE(newest.size() == 2 * kOdd.kv_width());
  for (const float x : newest) REQUIRE(std::isfinite(x));
  for (const auto& [layer, position] : {std::pair(0, 13), {0, -1}, {-1, 0}, {3, 0}})
    REQUIRE_FALSE(e->kv_row(layer, position).has_value());
}

TEST_CASE("engines share nothing, and a reset leaves nothing behind", "[host_twin]") {
  const std::vector<int32_t> a = random_ids(33, 1), b = random_ids(70, 2);
  const auto solo = make(), other = make();
  const Run run_a = prefill_and_decode(*solo, a, 50);
  solo->reset();
  const Run run_b = prefill_and_decode(*solo, b, 50);
  solo->reset();
  REQUIRE(prefill_and_decode(*solo, a, 50) == run_a);  // A, B, A
  REQUIRE_FALSE(run_a == run_b);

  solo->reset();
  solo->prefill(a);
  other->prefill(b);
  for (size_t t = 0; t < 50; ++t) {  // step by step in turn
    REQUIRE(solo->decode(1)[0] == run_a.tokens[t]);
    REQUIRE(other->decode(1)[0] == run_b.tokens[t]);
  }
}

TEST_CASE("poison is never read, and restore goes back to the same bits", "[host_twin]") {
  const std::vector<int32_t> prompt = random_ids(33, 4);
  const auto e = make();
  const Run clean = prefill_and_decode(*e, prompt, 100);
  // The longer sequence leaves rows above the position, which poison() overwrites. The bits are the
  // same with and without poison().
  for (const bool poisoned : {false, true}) {
    e->reset();
    if (poisoned) e->poison();
    e->prefill(prompt);
    if (poisoned) e->poison();
    const Snapshot s = e->save();
    REQUIRE(s.position == 32);
    REQUIRE(s.pending == prompt.back());
    Run run;
    run.logits.resize(clean.logits.size());
    run.tokens = e->decode(100, nullptr, run.logits.data());
    REQUIRE(run == clean);
    e->restore(s);
    REQUIRE(e->position() == 32);
    REQUIRE_FALSE(e->hidden(0).has_value());
    run.tokens = e->decode(100, nullptr, run.logits.data());
    REQUIRE(run == clean);
  }
}

TEST_CASE("another thread sees where a running decode is", "[host_twin]") {
  const auto e = make({.threads = 2});
  std::atomic<int> done{0}, seen{0};
  int last = -1;
  bool sane = true;
  std::thread watcher([&] {
    while (done == 0) {
      const Progress p = e->progress();
      if (p.position < 0) continue;
      sane = sane && p.position >= last && p.position < 300 && p.layer < kOdd.layers;
      sane = sane && !p.phase.empty();
      seen += p.position != last;
      last = p.position;
    }
  });
  e->set_pending(1);
  e->decode(300);
  // The last step's location stays readable, so even a watcher thread that starts late finds one.
  while (seen == 0) std::this_thread::yield();
  done = 1;
  watcher.join();
  REQUIRE(sane);
  REQUIRE(e->progress().position == 299);
  REQUIRE(e->progress().phase == phase_name(Phase::kLmHead));
}

TEST_CASE("a reset that keeps rows keeps eight", "[host_twin]") {
  for (const int rows : {3, 20}) {
    const auto e = make({.fault = PlantedFault::kResetKeepsRows});
    e->prefill(random_ids(rows + 1, 4));
    e->reset();
    CHECK(e->position() == std::min(rows, 8));
  }
}

TEST_CASE("a timeline has a body of each phase of each block, and room for all", "[host_twin]") {
  constexpr int kSteps = 3;
  for (const int blocks : {1, 3}) {
    const auto e = make({.blocks = blocks});
    e->prefill(random_ids(4, 3));
    CHECK(thrown_by([&] { e->timeline(); }).says("no decode has recorded a timeline"));
    REQUIRE(e->set_timeline(true));
    e->decode(kSteps);
    const Timeline timeline = e->timeline();
    CHECK(timeline.lost == 0);
    std::map<std::tuple<int, int, int, std::string>, int> bodies;
    for (const TimelineSpan& span : timeline.spans) {
      if (span.what() != SpanKind::kBody) continue;
      ++bodies[{span.block, span.step, span.layer,
                timeline.phases[static_cast<size_t>(span.phase)]}];
    }
    // Each step ends with the choice of its id, which counts as the embedding of the next step.
    CHECK(std::ssize(bodies) == blocks * (kSteps * (2 + 5 * kOdd.layers) + 1));
    for (const auto& [place, count] : bodies) {
      const auto& [block, step, layer, phase] = place;
      CHECK(count == (phase == phase_name(Phase::kEmbed) && step > 0 && step < kSteps ? 2 : 1));
    }
    REQUIRE(e->set_timeline(false));
    CHECK(thrown_by([&] { e->timeline(); }).says("no decode has recorded a timeline"));
  }
}

TEST_CASE("restore refuses a prefix that is not the snapshot's", "[host_twin]") {
  const auto e = make();
  e->prefill(random_ids(33, 4));
  Snapshot s = e->save();
  e->restore(s);
  s.position = -1;
  require_bad_input([&] { e->restore(s); }, "restore: position -1 is not in [0, 32]");
  s.position = 32;
  e->reset();
  require_bad_input([&] { e->restore(s); }, "restore: position 32 is not in [0, 0]");
  std::vector<int32_t> ids = random_ids(33, 4);
  ids[31] = (ids[31] + 1) % kOdd.vocab;  // only the last row differs
  e->prefill(ids);
  const Thrown thrown = thrown_by([&] { e->restore(s); });
  REQUIRE(thrown.kind == ErrorKind::kIntegrity);
  REQUIRE(thrown.says("not those of the snapshot"));
  REQUIRE(e->position() == 32);  // refused before any state changed
}

TEST_CASE("a missing block is found in time, named, and survived", "[host_twin]") {
  const std::vector<int32_t> prompt = random_ids(20, 5);
  for (const int blocks : {1, 3, 8, 128}) {
    for (const int threads : {1, 2}) {
      HostTwinOptions options{.blocks = blocks, .threads = threads};
      const Run want = prefill_and_decode(*make(options), prompt, 30);
      // Launch 0 is the prefill, launch 1 the decode that stalls.
      const int missing = blocks - 1;
      options.stall_ms = 250, options.stall_block = missing, options.stall_launch = 1;
      const auto e = make(options);
      REQUIRE_FALSE(e->standstill());
      e->prefill(prompt);
      REQUIRE_FALSE(e->standstill());
      const Thrown thrown = thrown_by([&] { e->decode(30); });
      INFO(thrown.message);
      REQUIRE(thrown.kind == ErrorKind::kHang);
      REQUIRE(thrown.says("block " + std::to_string(missing) +
                          " did not arrive after phase attention, layer 2, position 19"));
      REQUIRE(thrown.says("blocks waiting " + std::to_string(blocks - 1)));
      const auto [position, layer, phase] = e->progress();
      REQUIRE((position == 19 && layer == 2 && phase == "attention"));
      // The others wait, in the launch's first step; a single block waits for none.
      const auto still = e->standstill();
      REQUIRE((still ? still->wanted > 0 && still->blocks[0].step == 0 : blocks == 1));
      // After an aborted launch every call is refused until reset().
      REQUIRE(thrown_by([&] { e->decode(1); }).says("reset() first"));
      REQUIRE(thrown_by([&] { e->prefill(prompt); }).says("reset() first"));
      e->reset();
      REQUIRE(prefill_and_decode(*e, prompt, 30) == want);
    }
  }
}

TEST_CASE("bad input is refused before any work", "[host_twin]") {
  const auto e = make();
  const int32_t ok[2] = {1, 2};
  require_bad_input([&] { e->prefill({}); }, "no ids");
  for (const int32_t id : {-1, kOdd.vocab, std::numeric_limits<int32_t>::max()}) {
    const int32_t ids[2] = {0, id};
    require_bad_input([&] { e->prefill(ids); }, "token id " + std::to_string(id));
    require_bad_input([&] { e->set_pending(id); }, "outside of 0 to 96");
    e->set_pending(5);
    require_bad_input([&] { e->decode(2, ids); }, "forced: token id " + std::to_string(id));
    e->reset();
  }
  e->prefill(ok);
  for (const int n : {0, -1, 300, std::numeric_limits<int>::max()}) {
    require_bad_input([&] { e->decode(n); }, n < 1 ? "n = " : "max_context is 300");
  }
  require_bad_input([&] { e->prefill(random_ids(301, 1)); }, "max_context is 300");
  REQUIRE(e->launch_count() == 1);  // the prefill of `ok`
  REQUIRE(e->position() == 1);
  REQUIRE(e->decode(299).size() == 299);  // to the last position
  require_bad_input([&] { e->decode(1); }, "position 300 + 1 steps");

  struct Limit {
    const char* name;
    int HostTwinOptions::*member;
    int low, high;
  };
  constexpr int kDayMs = 86'400'000;
  for (const Limit& limit : {Limit{"max_context", &HostTwinOptions::max_context, 1, 300},
                             {"blocks", &HostTwinOptions::blocks, 1, 1024},
                             {"threads", &HostTwinOptions::threads, 0, 1024},
                             {"stall_ms", &HostTwinOptions::stall_ms, 1, kDayMs},
                             {"stall_block", &HostTwinOptions::stall_block, -1, 3}}) {
    const auto with = [&](int value) {
      HostTwinOptions options{.max_context = 9, .blocks = 4};
      options.*limit.member = value;
      make_host_twin(odd_model(), options);
    };
    for (const int inside : {limit.low, limit.high}) CHECK_NOTHROW(with(inside));
    const std::string wanted =
        ", wanted " + std::to_string(limit.low) + " to " + std::to_string(limit.high);
    for (const int outside : {limit.low - 1, limit.high + 1})
      require_bad_input([&] { with(outside); },
                        limit.name + (" = " + std::to_string(outside) + wanted));
  }
  // What a host asks for arrives, too.
  for (int EngineRequest::*member : {&EngineRequest::max_context, &EngineRequest::threads}) {
    EngineRequest request{.name = "host-twin", .max_context = 9};
    CHECK(host_twin_maker.bytes(odd_model().config, request) == 9 * kOdd.kv_bytes_per_position());
    request.*member = 1025;
    require_bad_input([&] { host_twin_maker.make(odd_model(), request); }, " = 1025, wanted");
  }
  ModelWeights w = odd_model();
  w.layers[1].o_proj.cols -= 1;
  require_bad_input([&] { make_host_twin(w, {.max_context = 9}); },
                    "model.layers.1.self_attn.o_proj.weight is [20, 59], wanted [20, 60]");
  w.layers.pop_back();
  require_bad_input([&] { make_host_twin(w, {.max_context = 9}); }, "2 layers");
}

// The odd model with one row of its LM head edited: row `to` = factor * row `from`.
ModelWeights with_head_row(int to, int from, float factor) {
  ModelWeights w = odd_model();
  auto head =
      std::make_shared<std::vector<Bf16>>(w.lm_head.data, w.lm_head.data + w.lm_head.size());
  for (int c = 0; c < kOdd.hidden; ++c) {
    Bf16& x = (*head)[static_cast<size_t>(to) * kOdd.hidden + c];
    x = to_bf16(factor * to_float((*head)[static_cast<size_t>(from) * kOdd.hidden + c]));
  }
  w.lm_head.data = head->data();
  w.owner = std::make_shared<std::pair<std::shared_ptr<const void>, decltype(head)>>(w.owner, head);
  return w;
}

TEST_CASE("the LM head scores every row, and the lowest index wins ties", "[host_twin]") {
  const int32_t winner = make()->step(1);
  for (const int blocks : {1, 8, 128}) {
    for (int32_t row = 0; row < kOdd.vocab; ++row) {
      const HostTwinOptions options{.max_context = 4, .blocks = blocks, .threads = 1};
      INFO("blocks " << blocks << ", row " << row);
      if (row == winner) continue;
      REQUIRE(make_host_twin(with_head_row(row, winner, 1), options)->step(1) ==
              std::min(row, winner));
      REQUIRE(make_host_twin(with_head_row(row, winner, 2), options)->step(1) == row);
    }
  }
}

TEST_CASE("a NaN logit is never outvoted", "[host_twin]") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const int blocks : {1, 3, 8, 128}) {
    for (const int row : {0, 1, 50, 96}) {
      const auto e = make_host_twin(with_head_row(row, row, kNaN),
                                    {.max_context = 20, .blocks = blocks, .threads = 1});
      std::vector<float> logits(2 * kOdd.vocab);
      e->set_pending(3);
      // Free running: the id -1 embeds as NaN, so all logits of the next step are NaN.
      REQUIRE(e->decode(2, nullptr, logits.data()) == std::vector<int32_t>{-1, -1});
      for (int i = 0; i < kOdd.vocab; ++i) {
        REQUIRE(std::isnan(logits[i]) == (i == row));
        REQUIRE(std::isnan(logits[kOdd.vocab + i]));
      }
      require_bad_input([&] { e->decode(1); }, "no pending id");
    }
  }
}

}  // namespace
}  // namespace mkbench
