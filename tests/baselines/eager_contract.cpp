// The contract of references/engine.h, held against every lane's engine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "references/base/error.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "references/weight_edit.h"
#include "tests/baselines/eager_lanes.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

// Expects an Error of `kind` whose one line names `part`.
template <typename Work>
void expect_error(ErrorKind kind, const std::string& part, const Work& work) {
  CHECK_THAT(error_line(kind, work), ContainsText(part));
}

// 2-norm of a - b over that of b.
double relative_distance(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(a[i] - b[i], 2);
    norm += std::pow(b[i], 2);
  }
  return std::sqrt(error / norm);
}

void check_prefill_is_stepwise(const ModelWeights& weights, Lane lane) {
  const ModelShape& shape = weights.config.shape;
  for (const bool fp32 : {true, false}) {
    if (fp32 && lane.static_steps()) continue;            // eager's own lane runs it
    const Ids ids = walk(fp32 ? 530 : 130, shape.vocab);  // 530: two query chunks
    EagerOptions options = options_for(lane);
    options.fp32 = fp32;
    const auto at_once = make_eager(weights, options), stepwise = make_eager(weights, options);
    at_once->prefill(ids);
    stepwise->prefill(std::span(ids).first(1));
    for (size_t i = 1; i < ids.size(); ++i) {
      stepwise->decode(1);
      stepwise->set_pending(ids[i]);
    }
    REQUIRE(at_once->position() == static_cast<int>(ids.size()) - 1);
    REQUIRE(stepwise->position() == at_once->position());
    std::vector<float> found, wanted;
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (const int position : {0, 1, 16, 128, 300, 511, 512, 528}) {
        if (position >= at_once->position()) continue;
        const auto a = at_once->kv_row(layer, position), b = stepwise->kv_row(layer, position);
        REQUIRE(a->size() == static_cast<size_t>(2 * shape.kv_width()));
        found.insert(found.end(), a->begin(), a->end());
        wanted.insert(wanted.end(), b->begin(), b->end());
      }
    }
    const double relative = relative_distance(found, wanted);
    CAPTURE(fp32, relative);
    // bf16 matmuls of one row and of many rows may sum in different orders and then round to
    // different neighbours, which are 2^-8 apart.
    CHECK(relative < (fp32 ? 1e-5 : 1e-2));
  }
}

void check_save_restore(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  engine->prefill(walk(40, vocab));
  const Snapshot snapshot = engine->save();
  CHECK(snapshot.position == 39);
  const Ids first = engine->decode(12);
  engine->restore(snapshot);
  CHECK(engine->position() == 39);
  CHECK(engine->save().kv_checksum == snapshot.kv_checksum);
  CHECK(engine->decode(12) == first);

  // The cache now holds another sequence of equal length: restore() must see that the prefix
  // differs.
  engine->reset();
  engine->prefill(walk(60, vocab, 5));
  expect_error(ErrorKind::kIntegrity, "modified", [&] { engine->restore(snapshot); });
  // Only the last row of the prefix differs.
  Ids changed = walk(40, vocab);
  changed[38] = (changed[38] + 1) % vocab;
  engine->reset();
  engine->prefill(changed);
  expect_error(ErrorKind::kIntegrity, "modified", [&] { engine->restore(snapshot); });
  // The snapshot lies beyond the sequence.
  engine->reset();
  expect_error(ErrorKind::kBadInput, "39", [&] { engine->restore(snapshot); });
}

void check_poison(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  engine->prefill(walk(70, vocab));
  const Ids expected = engine->decode(10);
  engine->reset();
  engine->prefill(walk(70, vocab));
  const uint64_t before = engine->save().kv_checksum;
  engine->poison();
  CHECK(engine->save().kv_checksum == before);
  CHECK_FALSE(engine->hidden(0).has_value());
  CHECK(engine->decode(10) == expected);
  // reset() alone leaves old rows behind, and no step may read them.
  engine->reset();
  engine->poison();
  engine->prefill(walk(70, vocab));
  CHECK(engine->decode(10) == expected);
}

void check_repeatable(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  std::vector<float> first(20 * static_cast<size_t>(vocab)), again(first.size());
  engine->prefill(walk(33, vocab));
  const Ids tokens = engine->decode(20, nullptr, first.data());
  for (int i = 0; i < 5; ++i) {
    // Another prompt in between must not change the results.
    engine->reset();
    engine->prefill(walk(50, vocab, i));
    engine->decode(3);
    engine->reset();
    engine->prefill(walk(33, vocab));
    CHECK(engine->decode(20, nullptr, again.data()) == tokens);
    CHECK(again == first);
    // A decode without logits must give equal tokens.
    engine->reset();
    engine->prefill(walk(33, vocab));
    CHECK(engine->decode(20) == tokens);
  }
}

void check_refusals(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  EagerOptions options = options_for(lane);
  options.max_context = 16;
  const auto engine = make_eager(weights, options);
  const auto refuses = [](const std::string& part, const auto& work) {
    expect_error(ErrorKind::kBadInput, part, work);
  };
  refuses("pending", [&] { engine->decode(1); });
  refuses("no ids", [&] { engine->prefill({}); });
  for (const int32_t bad : {-1, vocab, std::numeric_limits<int32_t>::max()}) {
    refuses("id 1 is " + std::to_string(bad), [&] { engine->prefill(Ids{1, bad}); });
    refuses(std::to_string(bad), [&] { engine->set_pending(bad); });
  }
  refuses("17", [&] { engine->prefill(walk(18, vocab)); });
  CHECK(engine->position() == 0);

  engine->prefill(walk(10, vocab));
  for (const int n : {0, -1}) refuses(std::to_string(n), [&] { engine->decode(n); });
  refuses("holds 16", [&] { engine->decode(8); });
  const Ids forced = {-7, 1, vocab};  // the first is ignored, the last is not
  refuses("forced id 2", [&] { engine->decode(3, forced.data()); });
  CHECK(engine->position() == 9);
  // Fills the cache exactly, because none of the refused calls wrote a row.
  CHECK(engine->decode(7).size() == 7);
  refuses("holds 16", [&] { engine->decode(1); });
  refuses("position 16", [&] { engine->kv_row(0, 16); });
  refuses("layer", [&] { engine->hidden(weights.config.shape.layers); });

  options.max_context = weights.config.max_positions + 1;
  refuses("max_position_embeddings", [&] { make_eager(weights, options); });
  options.max_context = 0;
  refuses("max_context is 0", [&] { make_eager(weights, options); });
}

void check_lowest_of_equals(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const size_t width = static_cast<size_t>(weights.config.shape.hidden);
  const Ids prompt = walk(20, vocab);
  const auto plain = make_eager(weights, options_for(lane));
  plain->prefill(prompt);
  const int32_t winner = plain->decode(1)[0];

  // Copies the winner's row of the head to rows all over the vocabulary, the first and the last
  // among them.
  WeightEdit copies(weights);
  copies.untie();
  std::vector<Bf16>& head = copies.own(copies.weights().lm_head);
  for (const int32_t id : {vocab - 1, vocab / 2, 7, 3}) {
    std::copy_n(weights.lm_head.row(winner).data(), width,
                head.data() + width * static_cast<size_t>(id));
    const auto engine = make_eager(copies.weights(), options_for(lane));
    engine->prefill(prompt);
    std::vector<float> logits(static_cast<size_t>(vocab));
    const int32_t token = engine->decode(1, nullptr, logits.data())[0];
    CAPTURE(winner, id);
    CHECK(logits[static_cast<size_t>(id)] == logits[static_cast<size_t>(winner)]);
    CHECK(token == argmax_lowest(logits));
    CHECK(token == std::min(winner, id));
  }
}

void check_nan_is_no_token(const ModelWeights& weights, Lane lane) {
  WeightEdit broken(weights);
  broken.untie();
  broken.own(broken.weights().lm_head).back() = Bf16{0x7fc0};
  const auto engine = make_eager(broken.weights(), options_for(lane));
  engine->prefill(walk(5, weights.config.shape.vocab));
  CHECK(engine->decode(1) == Ids{-1});
  expect_error(ErrorKind::kBadInput, "pending", [&] { engine->decode(1); });
}

void check_localiser_hooks(const ModelWeights& weights, Lane lane) {
  const ModelShape& shape = weights.config.shape;
  EagerOptions options = options_for(lane);
  options.fp32 = !lane.static_steps();
  const double tolerance = options.fp32 ? 1e-3 : 3e-2;  // of a row's norm
  const auto engine = make_eager(weights, options);
  Oracle oracle(weights);
  const auto check_row = [&](const std::vector<float>& got, const std::vector<float>& wanted) {
    CHECK(relative_distance(got, wanted) < tolerance);
  };
  const Ids ids = walk(24, shape.vocab);
  for (const int32_t id : ids) oracle.step(id, false);
  engine->prefill(ids);
  CHECK_FALSE(engine->hidden(0).has_value());
  engine->decode(1);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto hidden = engine->hidden(layer);
    REQUIRE(hidden.has_value());
    check_row(*hidden, oracle.hidden_states()[static_cast<size_t>(layer)]);
    for (const int position : {0, 11, 23})
      check_row(*engine->kv_row(layer, position), oracle.kv_row(layer, position));
  }
}

void check_times_and_counts(const ModelWeights& weights, Lane lane) {
  const auto engine = make_eager(weights, options_for(lane));
  CHECK(engine->capabilities().name == lane.name());
  CHECK(engine->capabilities().poison == !lane.static_steps());
  CHECK(engine->capabilities().max_context == 1024);
  CHECK(engine->capabilities().device.substr(0, 4) == (lane.cuda ? "cuda" : "cpu"));
  CHECK_FALSE(engine->capabilities().one_launch);
  engine->prefill(walk(4, weights.config.shape.vocab));
  CHECK(engine->launch_count() == 0);
  engine->decode(5);
  engine->decode(2);
  CHECK(engine->launch_count() == 2);
  CHECK(engine->progress().position == 10);
  CHECK(engine->progress().phase.empty());
  const DecodeTimes times = engine->last_times();
  CHECK(times.host_ms > 0);
  CHECK((times.event_ms > 0) == lane.cuda);
  CHECK(times.event_ms <= times.host_ms * 1.01 + 0.02);
}

// For lanes with static steps. On both sides of a bucket's end the logits are as near to the truth as those of
// eager, and KV rows that an earlier sequence has left behind this one change nothing.
void check_buckets(const ModelWeights& weights, Lane lane) {
  const auto vocab = static_cast<size_t>(weights.config.shape.vocab);
  const Ids prompt = walk(241, weights.config.shape.vocab),
            inputs = walk(40, weights.config.shape.vocab, 3);
  const auto run = [&](Engine& engine) {
    std::vector<float> logits(inputs.size() * vocab);
    engine.reset();
    engine.prefill(prompt);
    engine.decode(static_cast<int>(inputs.size()), inputs.data(), logits.data());
    return logits;
  };
  const auto engine = make_eager(weights, options_for(lane));
  const auto eager = make_eager(weights, options_for({.cuda = lane.cuda}));
  EagerOptions truth_options = options_for({.cuda = lane.cuda});
  truth_options.fp32 = true;
  const auto truth = make_eager(weights, truth_options);
  const std::vector<float> fresh = run(*engine), wanted = run(*truth), rounded = run(*eager);
  // Position 255 is the last of the first bucket: step 15 of these.
  double ours = 0, theirs = 0;
  for (size_t s = 0; s < inputs.size(); ++s) {
    const auto of = [&](const std::vector<float>& z) { return row(z, s, static_cast<int>(vocab)); };
    ours += centred_distance_squared(of(fresh), of(wanted));
    theirs += centred_distance_squared(of(rounded), of(wanted));
  }
  const double r_rms = std::sqrt(ours / theirs);
  CAPTURE(r_rms);
  CHECK(r_rms <= 1.25);
  engine->reset();
  engine->prefill(walk(700, weights.config.shape.vocab, 5));
  engine->decode(20);
  CHECK(run(*engine) == fresh);
}

}  // namespace

void check_contract(Lane lane) {
  const ModelWeights weights = load_model(resolve_model("tiny"));
  SECTION("prefill equals single steps") { check_prefill_is_stepwise(weights, lane); }
  SECTION("save and restore") { check_save_restore(weights, lane); }
  SECTION("repeatable") { check_repeatable(weights, lane); }
  SECTION("refusals") { check_refusals(weights, lane); }
  SECTION("lowest index among equals") { check_lowest_of_equals(weights, lane); }
  SECTION("NaN is no token") { check_nan_is_no_token(weights, lane); }
  SECTION("localiser hooks") { check_localiser_hooks(weights, lane); }
  SECTION("times and counts") { check_times_and_counts(weights, lane); }
  SECTION(lane.static_steps() ? "buckets" : "poison") {
    (lane.static_steps() ? check_buckets : check_poison)(weights, lane);
  }
}

}  // namespace mkbench::testing
