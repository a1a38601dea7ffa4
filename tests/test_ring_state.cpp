// The ring megakernel's state on a GPU: results have equal bits whatever came before and however
// fast the weights stream; refusals, and reports of faults.
#include "kernels/ring/tuning.h"
#include "references/base/error.h"
#include "tests/support/ring_models.h"

namespace mkbench {
namespace {

using namespace testing;

constexpr int kVocab = 1000;

// The most copies in flight that this card's ring allows.
int most_copies() {
  int gpu = 0, major = 0;
  REQUIRE(cudaGetDevice(&gpu) == cudaSuccess);
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess);
  return ring::most_copies_in_flight(kQwen3_0_6B, major);
}

TEST_CASE("ring repeats itself to the bit, at every pace and size of its cache", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto prompt = random_ids(110, kVocab), other = random_ids(9, kVocab);
  const auto e = make_ring(four_layers(), {.max_context = 512});
  const Run first = run(*e, prompt, 40, kVocab);  // begins redundant, ends split
  REQUIRE(std::count(first.ids.begin(), first.ids.end(), -1) == 0);
  for (int i = 0; i < 20; ++i) REQUIRE(run(*e, prompt, 40, kVocab) == first);
  const Run second = run(*e, other, 40, kVocab);
  REQUIRE(second.ids != first.ids);
  REQUIRE(run(*e, prompt, 40, kVocab) == first);  // the other prompt has left no trace
  for (int copies = 1; copies <= most_copies(); ++copies) {
    for (const int gap : {0, 400, 860}) {
      INFO(copies << " copies, " << gap << " cycles");
      retune_ring(*e, {.pace = {copies, gap}});
      for (int i = 0; i < 2; ++i) REQUIRE(run(*e, prompt, 40, kVocab) == first);
    }
  }
  retune_ring(*e, {});
  e->reset();
  e->prefill(prompt);
  REQUIRE(e->decode(40) == first.ids);  // without logits: the timed launch
  e->reset();
  e->prefill(prompt);
  std::vector<int32_t> one_by_one;
  for (int i = 0; i < 40; ++i) one_by_one.push_back(e->decode(1)[0]);
  REQUIRE(one_by_one == first.ids);
  const auto fresh = make_ring(four_layers(), {.max_context = 4096});
  for (int i = 0; i < 3; ++i) {  // two engines, used alternately, share no state
    REQUIRE(run(*fresh, prompt, 40, kVocab) == first);
    REQUIRE(run(*e, other, 40, kVocab) == second);
  }
}

TEST_CASE("ring takes no hidden vectors and says so", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto e = make_ring(four_layers(), {.max_context = 64});
  REQUIRE_FALSE(e->capabilities().vectors);
  const std::vector<Bf16> vector(static_cast<size_t>(four_layers().config.shape.hidden));
  std::string message;
  try {
    e->decode_vectors(1, {.in = vector.data()});
  } catch (const Error& error) {
    message = error.what();
  }
  REQUIRE(message == "ring: decode_vectors: this engine takes ids and gives logits alone");
  REQUIRE(e->position() == 0);
}

TEST_CASE("ring repeats itself to the bit at every pace with several slots of LM head", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const int vocab = GENERATE(2048, 128 * 8 * 12, 128 * 8 * 22 + 1);  // 2, 12, 23 slots
  const ModelWeights w = with_larger_vocab(with_layers(four_layers(), 2), vocab);
  const auto prompt = random_ids(120, vocab);
  const auto e = make_ring(w, {.max_context = 256});
  const Run first = run(*e, prompt, 16, vocab);  // begins redundant, ends split
  REQUIRE(std::count(first.ids.begin(), first.ids.end(), -1) == 0);
  for (int copies = 1; copies <= most_copies(); ++copies) {
    for (const int gap : {0, 700}) {
      INFO("vocabulary " << vocab << ", " << copies << " copies, " << gap << " cycles");
      retune_ring(*e, {.pace = {copies, gap}});
      for (int i = 0; i < 3; ++i) REQUIRE(run(*e, prompt, 16, vocab) == first);
    }
  }
}

TEST_CASE("ring repeats itself to the bit in both modes and on the slow path", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const bool far = GENERATE(false, true);
  const ModelWeights w = far ? bound_too_far(four_layers()) : four_layers();
  const auto prompt = random_ids(300, kVocab);
  const auto e = make_ring(w, {.max_context = 1024});
  for (const int split_from : {0, 512}) {
    for (const bool slow : {false, true}) {
      INFO("split from " << split_from << ", slow " << slow << ", bound far " << far);
      retune_ring(*e, {.split_from = split_from, .slow_attention = slow});
      const Run first = run(*e, prompt, 8, kVocab);
      for (int i = 0; i < 10; ++i) REQUIRE(run(*e, prompt, 8, kVocab) == first);
      // Rows above the position have no effect: before they were NaN, here they are another
      // prompt's.
      e->reset();
      e->prefill(random_ids(500, kVocab));
      e->reset();
      Run unpoisoned;
      unpoisoned.logits.resize(first.logits.size());
      e->prefill(prompt);
      unpoisoned.ids = e->decode(8, nullptr, unpoisoned.logits.data());
      REQUIRE(unpoisoned == first);
    }
  }
}

TEST_CASE("ring goes back to a saved position, to the bit", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  // With these weights the exponentials' bits depend on the longest key so far, which grows in the
  // continuation.
  const auto e = make_ring(bound_decides(four_layers()), {.max_context = 512});
  e->prefill(random_ids(100, kVocab));
  const Snapshot start = e->save();
  REQUIRE(start.position == 99);
  REQUIRE(start.derived.size() == 4 * 8);
  const int64_t launches = e->launch_count();
  Run first{{}, std::vector<float>(100 * kVocab)}, again = first;
  first.ids = e->decode(100, nullptr, first.logits.data());
  REQUIRE(e->launch_count() == launches + 1);
  REQUIRE(e->position() == 199);
  const std::vector<float> grown = e->save().derived;
  REQUIRE(grown != start.derived);
  for (size_t i = 0; i < grown.size(); ++i) REQUIRE(grown[i] >= start.derived[i]);
  for (int i = 0; i < 3; ++i) {
    e->restore(start);
    REQUIRE(e->position() == 99);
    REQUIRE(e->save().derived == start.derived);
    again.ids = e->decode(100, nullptr, again.logits.data());
    REQUIRE(again == first);
  }
  Snapshot longer = start;  // other values of |k| give other bits
  for (float& x : longer.derived) x *= 1.1f;
  e->restore(longer);
  again.ids = e->decode(100, nullptr, again.logits.data());
  REQUIRE(again.logits != first.logits);
  Snapshot bare = start;  // without derived values: they are computed from the rounded rows
  bare.derived.clear();
  e->restore(bare);
  const std::vector<float> found = e->save().derived;
  for (size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i] == Approx(start.derived[i]).epsilon(0.005));
  }
  Snapshot wrong = start;
  wrong.kv_checksum ^= 1;
  REQUIRE_THROWS_AS(e->restore(wrong), Error);
  wrong = start;
  wrong.derived.pop_back();
  REQUIRE_THROWS_AS(e->restore(wrong), Error);
  e->reset();  // after it, the rows are another prompt's: the snapshot must be refused
  REQUIRE(e->save().derived == std::vector<float>(4 * 8, 0.0f));
  std::vector<int32_t> shifted = random_ids(151, kVocab);
  shifted.erase(shifted.begin());
  e->prefill(shifted);
  REQUIRE_THROWS_AS(e->restore(start), Error);
}

TEST_CASE("ring reports its times and its progress, one launch a decode", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto e = make_ring(four_layers(), {.max_context = 512});
  e->prefill(random_ids(10, kVocab));
  REQUIRE(e->launch_count() == 1);
  REQUIRE_FALSE(e->hidden(0).has_value());
  e->decode(200);
  REQUIRE(e->launch_count() == 2);
  REQUIRE_FALSE(e->hidden(0).has_value());  // kept with logits only
  const DecodeTimes t = e->last_times();
  REQUIRE(t.per_token_ms.size() == 200);
  REQUIRE(t.device_ms > 0);
  REQUIRE(t.device_ms <= t.event_ms * 1.01 + 0.02);
  REQUIRE(t.event_ms <= t.host_ms * 1.01 + 0.02);
  REQUIRE(t.sm_ghz > 0.2);
  REQUIRE(t.sm_ghz < 4);
  REQUIRE(e->progress().position == 9 + 199);
}

TEST_CASE("ring runs its ablations and comes back with the same bits", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto prompt = random_ids(150, kVocab);
  const auto e = make_ring(four_layers(), {.max_context = 1024});
  const Run first = run(*e, prompt, 20, kVocab);
  for (const RingAblation ablation : {RingAblation::kNoWaits, RingAblation::kNoLoads}) {
    for (const int depth : {0, 60, 600}) {
      retune_ring(*e, {.ablation = ablation});
      REQUIRE(e->skip_to(depth));
      REQUIRE(e->position() == depth);
      REQUIRE(e->decode(32).size() == 32);
      REQUIRE(e->last_times().device_ms > 0);
    }
  }
  retune_ring(*e, {});
  REQUIRE(run(*e, prompt, 20, kVocab) == first);
}

TEST_CASE("a block of ring that never publishes is a fault with an address", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto prompt = random_ids(10, kVocab);  // too few ids for batched prefill: runs as steps
  const auto healthy = make_ring(four_layers(), {.max_context = 64});
  const Run first = run(*healthy, prompt, 8, kVocab);
  for (const int split_from : {0, 128}) {
    const auto e = make_ring(
        four_layers(),
        {.max_context = 64, .spin_scale = 0.05, .stall_block = 5, .split_from = split_from});
    for (int i = 0; i < 2; ++i) {
      e->reset();
      try {
        e->prefill(prompt);
        FAIL("no error");
      } catch (const Error& error) {
        const std::string text = error.what();
        INFO(text);
        REQUIRE(error.kind() == ErrorKind::kHang);
        REQUIRE(text.find("ring megakernel: block ") != std::string::npos);
        // The block's group waits in attention, the other groups for the sum that it adds to.
        REQUIRE(text.find("waited in vain before phase ") != std::string::npos);
        REQUIRE(text.find(", layer 0, position 0: expected ") != std::string::npos);
      }
      REQUIRE(e->position() == 0);
      REQUIRE(run(*healthy, prompt, 8, kVocab) == first);  // the CUDA context is still usable
    }
  }
}

TEST_CASE("a NaN in ring's weights is an error or no token, never a token", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelWeights& w = four_layers();
  const auto prompt = random_ids(10, kVocab);
  std::vector<Bf16> head(w.lm_head.data, w.lm_head.data + w.lm_head.size());
  head[777 * 1024 + 3] = Bf16{0x7fc0};
  const auto e = make_ring(with_head(w, head), {.max_context = 64});
  e->prefill(prompt);
  REQUIRE(e->decode(8) == std::vector<int32_t>(8, -1));
  REQUIRE(e->position() == 10);  // with the step's own row, without those of later steps
  REQUIRE(e->last_times().per_token_ms.empty());
  REQUIRE_THROWS_AS(e->decode(1), Error);  // nothing is pending
  e->reset();
  e->prefill(prompt);
  REQUIRE(e->position() == 9);

  for (Matrix LayerWeights::*member :
       {&LayerWeights::q_proj, &LayerWeights::k_norm, &LayerWeights::v_proj, &LayerWeights::o_proj,
        &LayerWeights::gate_proj, &LayerWeights::down_proj,
        &LayerWeights::post_attention_layernorm}) {
    const auto sick = make_ring(
        with_layers_edited(
            w, member,
            [](int layer, int i, float x) { return layer == 2 && i == 100 ? std::nanf("") : x; }),
        {.max_context = 64, .spin_scale = 0.05});
    std::vector<int32_t> ids(4, -1);
    try {
      sick->set_pending(prompt[0]);
      ids = sick->decode(4, prompt.data());
    } catch (const Error& error) {
      INFO(error.what());
      REQUIRE(error.kind() == ErrorKind::kRuntime);
    }
    REQUIRE(ids == std::vector<int32_t>(4, -1));
  }
}

// Makes the logit of `token` NaN in the step after `token`. Its row of the LM head is huge,
// positive in one column and negative in another, so in other steps its logit is mostly the largest
// or the smallest of all. Its embedding is large in both columns, so in the next step its logit is
// infinity minus infinity.
ModelWeights with_nan_after(const ModelWeights& w, int token) {
  std::vector<Bf16> head(w.lm_head.data, w.lm_head.data + w.lm_head.size());
  std::vector<Bf16> embedding(w.embed_tokens.data, w.embed_tokens.data + w.embed_tokens.size());
  const size_t row = static_cast<size_t>(token) * 1024;
  std::fill_n(head.begin() + static_cast<int64_t>(row), 1024, Bf16{0});
  head[row + 100] = to_bf16(0x1p124f);
  head[row + 900] = to_bf16(-0x1p124f);
  embedding[row + 100] = embedding[row + 900] = to_bf16(0x1p18f);  // the exchange carries 2^20
  return with_head(with_embedding(w, std::move(embedding)), std::move(head));
}

TEST_CASE("ring ends at a NaN in either mode, at any step, and works afterwards", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  constexpr int kToken = 777, kSteps = 16;
  const auto e = make_ring(with_nan_after(four_layers(), kToken), {.max_context = 64});
  // Forced ids: the launch goes on to its last step, where the NaN is.
  std::vector<int32_t> forced(kSteps, 5);
  forced.back() = kToken;
  for (const int split_from : {0, 8, kSteps - 1, 512}) {
    INFO("split from " << split_from);
    retune_ring(*e, {.split_from = split_from});
    e->reset();
    e->set_pending(forced[0]);
    const auto ids = e->decode(kSteps, forced.data());
    REQUIRE(std::count(ids.begin(), ids.end(), -1) == 1);
    REQUIRE(ids.back() == -1);
    REQUIRE(e->position() == kSteps);
    REQUIRE_THROWS_AS(e->decode(1), Error);  // nothing is pending
  }
  // Free-running, a launch ends in the step after it has chosen kToken. Looks for a start from
  // which that takes some steps.
  int start = -1, end = 0;
  std::vector<int32_t> wanted;
  retune_ring(*e, {.split_from = 512});
  for (int id = 0; id < 100 && start < 0; ++id) {
    e->reset();
    e->set_pending(id);
    wanted = e->decode(kSteps);
    end = static_cast<int>(std::find(wanted.begin(), wanted.end(), -1) - wanted.begin());
    if (end >= 3 && end < kSteps - 3) start = id;
  }
  REQUIRE(start >= 0);
  REQUIRE(wanted[static_cast<size_t>(end) - 1] == kToken);
  for (const int split_from : {0, 1, end - 1, end, end + 1, 512}) {
    for (const int steps : {kSteps, end + 1}) {  // ends before, or at, the last step
      INFO("split from " << split_from << ", " << steps << " steps, no token at " << end);
      retune_ring(*e, {.split_from = split_from});
      e->reset();
      e->set_pending(start);
      REQUIRE(e->decode(steps) == std::vector(wanted.begin(), wanted.begin() + steps));
      REQUIRE(e->position() == end + 1);
      REQUIRE_THROWS_AS(e->decode(1), Error);
      e->reset();  // afterwards the engine works
      e->set_pending(start);
      REQUIRE(e->decode(end) == std::vector(wanted.begin(), wanted.begin() + end));
    }
  }
}

TEST_CASE("what ring's fixed-point exchange cannot carry is an error", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto prompt = random_ids(10, kVocab);
  const auto with_scale = [&](float factor) {
    return make_ring(with_layers_edited(
                         four_layers(), &LayerWeights::down_proj,
                         [factor](int layer, int, float x) { return layer == 1 ? x * factor : x; }),
                     {.max_context = 64});
  };
  const auto large = with_scale(0x1p12f);  // in range: only the residual stream grows
  large->prefill(prompt);
  REQUIRE(large->decode(1)[0] >= 0);
  const auto e = with_scale(0x1p24f);
  try {
    e->prefill(prompt);
    FAIL("no error");
  } catch (const Error& error) {
    INFO(error.what());
    REQUIRE(error.kind() == ErrorKind::kRuntime);
    REQUIRE_THAT(error.what(), ContainsText("layer 1, position 0"));
    REQUIRE_THAT(error.what(), ContainsText("2^20"));
  }
  REQUIRE(e->position() == 0);
  REQUIRE(large->decode(1)[0] >= 0);  // the CUDA context is still usable
}

TEST_CASE("ring scores every row of any vocabulary", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const std::vector<int32_t> prompt{0};
  Run all{{}, std::vector<float>(kVocab)};
  const auto full = make_ring(four_layers(), {.max_context = 64});
  full->prefill(prompt);
  full->decode(1, nullptr, all.logits.data());
  for (const int vocab : {1, 7, 127, 129, 999}) {
    const auto e = make_ring(with_vocab(four_layers(), vocab), {.max_context = 64});
    std::vector<float> logits(static_cast<size_t>(vocab));
    e->prefill(prompt);
    const auto ids = e->decode(1, nullptr, logits.data());
    INFO("vocabulary " << vocab);
    REQUIRE(std::equal(logits.begin(), logits.end(), all.logits.begin()));
    REQUIRE(ids[0] == argmax_lowest(logits));
  }
}

TEST_CASE("among equal logits of ring the lowest index wins, across warps and blocks", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  // Rows 0-4 are zero and all others equal, so the lowest row of the largest logit is 0 or 5.
  std::vector<Bf16> head(static_cast<size_t>(kVocab) * 1024, Bf16{0});
  for (size_t i = 5 * 1024; i < head.size(); ++i) {
    head[i] = to_bf16(0.01f * static_cast<float>(i % 1024) - 5);
  }
  const auto e = make_ring(with_head(four_layers(), head), {.max_context = 64});
  std::vector<float> logits(32 * kVocab);
  e->set_pending(7);
  const auto ids = e->decode(32, nullptr, logits.data());
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto row = std::span(logits).subspan(t * kVocab, kVocab);
    REQUIRE(row[5] == row[999]);
    REQUIRE(ids[t] == (row[5] > 0 ? 5 : 0));
  }
}

TEST_CASE("ring refuses what it cannot do and never clamps", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelWeights& w = four_layers();
  const auto kind_of = [&](const RingOptions& options) {
    try {
      make_ring(w, options);
    } catch (const Error& error) {
      return error.kind();
    }
    FAIL("no error");
    return ErrorKind::kRuntime;
  };
  REQUIRE(ring_obstacle(w.config, 0).empty());
  REQUIRE(kind_of({.gpu = 99}) == ErrorKind::kUnsupportedDevice);
  REQUIRE(kind_of({.max_context = 0}) == ErrorKind::kBadInput);
  REQUIRE(kind_of({.split_from = 513}) == ErrorKind::kBadInput);
  REQUIRE(kind_of({.pace = {100, 0}}) == ErrorKind::kBadInput);
  REQUIRE(kind_of({.pace = {3, -1}}) == ErrorKind::kBadInput);
  REQUIRE(kind_of({.head_pace = {8, 0}}) == ErrorKind::kBadInput);
  REQUIRE(kind_of({.head_pace = {3, -1}}) == ErrorKind::kBadInput);
  const auto e = make_ring(w, {.max_context = 16});
  REQUIRE_THROWS_AS(e->decode(1), Error);  // nothing pending
  for (const int32_t id : {-1, kVocab, INT32_MAX}) {
    REQUIRE_THROWS_AS(e->prefill(std::vector<int32_t>{1, id}), Error);
    REQUIRE_THROWS_AS(e->set_pending(id), Error);
  }
  REQUIRE_THROWS_AS(e->prefill({}), Error);
  e->prefill(std::vector<int32_t>{1, 2, 3});
  REQUIRE_THROWS_AS(e->decode(0), Error);
  REQUIRE_THROWS_AS(e->decode(15), Error);
  REQUIRE(e->position() == 2);
  REQUIRE(e->decode(14).size() == 14);
  REQUIRE_THROWS_AS(e->decode(1), Error);
}

// Also run under compute-sanitizer's memcheck and synccheck: therefore few steps, and waits that
// may take a hundred times as long.
TEST_CASE("ring stays inside its buffers, filled to the last position", "[ring][memcheck]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  constexpr int kContext = 37;  // a tile's edge, and past it
  const bool slow = GENERATE(false, true);
  const auto e = make_ring(
      four_layers(),
      {.max_context = kContext, .spin_scale = 100, .split_from = 34, .slow_attention = slow});
  const auto ids = random_ids(kContext - 5, kVocab);
  std::vector<float> logits(6 * kVocab);
  e->prefill(ids);
  const auto tokens = e->decode(6, nullptr, logits.data());
  REQUIRE(e->position() == kContext);
  REQUIRE(std::count(tokens.begin(), tokens.end(), -1) == 0);
  REQUIRE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  e->reset();
  e->poison();
  e->prefill(ids);
  REQUIRE(e->decode(6) == tokens);
}

}  // namespace
}  // namespace mkbench
