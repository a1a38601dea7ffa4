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
  const auto e = make_ring(four_layers(), {.max_context = 512}),
             fresh = make_ring(four_layers(), {.max_context = 4096});
  const Run first =
      require_repeats(*e, *fresh, prompt, other, 40, kVocab);  // redundant, then split
  for (int copies = 1; copies <= most_copies(); ++copies) {
    for (const int gap : {0, 400, 860}) {
      INFO(copies << " copies, " << gap << " cycles");
      retune_ring(*e, {.pace = {copies, gap}});
      for (int i = 0; i < 2; ++i) REQUIRE(run(*e, prompt, 40, kVocab) == first);
    }
  }
}

TEST_CASE("ring takes no hidden vectors and says so", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto e = make_ring(four_layers(), {.max_context = 64});
  REQUIRE_FALSE(e->capabilities().vectors);
  const std::vector<Bf16> vector(static_cast<size_t>(four_layers().config.shape.hidden));
  REQUIRE(thrown_by([&] { e->decode_vectors(1, {.in = vector.data()}); }).message ==
          "ring: decode_vectors: this engine takes ids and gives logits alone");
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

TEST_CASE("ring goes back to any position with the bits of the rows below", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  // The exponentials' bits depend on the longest key so far. The context is split from 128 on.
  const int length = GENERATE(70, 120);
  const auto e = make_ring(bound_decides(four_layers()), {.max_context = 256}),
             fresh = make_ring(bound_decides(four_layers()), {.max_context = 256});
  require_rewinds(*e, *fresh, random_ids(length, kVocab), kVocab);
  e->reset();
  REQUIRE(e->skip_to(40));  // rows of no id, which stay
  e->decode(3);
  e->rewind(41);
  REQUIRE(fresh->skip_to(40));
  fresh->decode(1);
  REQUIRE(e->save().derived == fresh->save().derived);
}

TEST_CASE("ring reports its times and its progress, one launch a decode", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto e = make_ring(four_layers(), {.max_context = 512});
  e->prefill(random_ids(10, kVocab));
  REQUIRE(e->launch_count() == 1);
  REQUIRE_FALSE(e->hidden(0).has_value());
  require_times_and_progress(*e);
  REQUIRE_FALSE(e->hidden(0).has_value());  // kept with logits only
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
      const Thrown thrown = thrown_by([&] { e->prefill(prompt); });
      INFO(thrown.message);
      REQUIRE(thrown.kind == ErrorKind::kHang);
      REQUIRE(thrown.says("ring megakernel: block "));
      // The block's group waits in attention, the other groups for the sum that it adds to.
      REQUIRE(thrown.says("waited in vain before phase "));
      REQUIRE(thrown.says(", layer 0, position 0: expected "));
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
  require_ends_at_nan(*e);
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
  const Thrown thrown = thrown_by([&] { e->prefill(prompt); });
  INFO(thrown.message);
  REQUIRE(thrown.kind == ErrorKind::kRuntime);
  REQUIRE(thrown.says("layer 1, position 0"));
  REQUIRE(thrown.says("2^20"));
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
  const ModelWeights& w = four_layers();
  const auto e =
      make_ring(with_head(w, head_of_two_values(w.config.shape, 5)), {.max_context = 64});
  require_lowest_index_wins(*e, kVocab);
}

TEST_CASE("ring refuses what it cannot do and never clamps", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelWeights& w = four_layers();
  REQUIRE(ring_obstacle(w.config, 0).empty());
  REQUIRE(thrown_by([&] { make_ring(w, {.gpu = 99}); }).kind == ErrorKind::kUnsupportedDevice);
  const RingOptions wrong[] = {{.max_context = 0}, {.split_from = 513},   {.pace = {100, 0}},
                               {.pace = {3, -1}},  {.head_pace = {8, 0}}, {.head_pace = {3, -1}}};
  for (const RingOptions& options : wrong)
    REQUIRE(thrown_by([&] { make_ring(w, options); }).kind == ErrorKind::kBadInput);
  require_refuses_requests(*make_ring(w, {.max_context = 16}), kVocab);
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
  require_stays_inside(*e, random_ids(kContext - 5, kVocab), 6, kVocab);
}

}  // namespace
}  // namespace mkbench
