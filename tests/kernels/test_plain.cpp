// The plain megakernel on a GPU: against the oracle, against itself, and with wrong input.
#include "kernels/plain/megakernel.h"
#include "tests/support/card_engine.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/random_model.h"

namespace mkbench {
namespace {

using namespace testing;

ModelWeights tiny() { return load_folder(data_dir() / "tiny", "tiny"); }

TEST_CASE("plain agrees with the oracle on the tiny checkpoints, lengths 1 to 1,025", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  const int blocks = GENERATE(0, 3);  // the whole GPU, and a grid with many tiles a block
  require_agreement_to_1025(name, [blocks](const ModelWeights& w, PlantedFault fault) {
    return make_plain(w, {.blocks = blocks, .fault = fault});
  });
}

TEST_CASE("plain agrees with the oracle to the last position", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  require_agreement_to_the_end(name, [](const ModelWeights& w, PlantedFault fault) {
    return make_plain(w, {.fault = fault});
  });
}

TEST_CASE("plain takes hidden vectors and gives them, as the oracle does", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const bool tied = GENERATE(true, false);
  const int blocks = GENERATE(0, 3);
  INFO("tied " << tied << ", blocks " << blocks);
  const ModelWeights w = random_model(kTiny, {.tied = tied});
  const auto e = make_plain(w, {.max_context = 64, .blocks = blocks});
  REQUIRE(e->capabilities().vectors);
  require_vectors_agree(*e, w, kRandomLimits);
  require_rows_equal_ids(*e, w);
  require_vectors_refused(*e, w);
  // A launch by id after them reads the embedding again.
  const auto fresh = make_plain(w, {.max_context = 64, .blocks = blocks});
  const auto prompt = random_ids(9, w.config.shape.vocab);
  REQUIRE(run(*e, prompt, 8, w.config.shape.vocab) == run(*fresh, prompt, 8, w.config.shape.vocab));
}

TEST_CASE("plain agrees with the oracle on four layers of the full shape", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  // Tokens are not compared: a cut of the analytic checkpoint has no margins between its logits.
  // Logits and hidden states are.
  const ModelWeights w = make_synthetic("short", 0, 4);
  const auto ids = synthetic_prompt(39, 7);
  Oracle oracle(w);
  const auto truth = truth_of(oracle, ids);
  const int blocks = GENERATE(0, 16);
  const auto e = make_plain(w, {.max_context = 64, .blocks = blocks});
  const Comparison c = compare_all(*e, ids, truth, kTrainedLimits.margin);
  INFO("blocks " << blocks << ", worst " << c.worst() << ", rms " << c.rms());
  REQUIRE(c.finite());
  REQUIRE(c.worst() <= kTrainedLimits.worst);
  REQUIRE(c.rms() <= kTrainedLimits.rms);
  REQUIRE(c.wrong() == 0);
  require_hidden_close(*e, oracle);
}

TEST_CASE("plain follows four layers of every shape, by oracle and closed form", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  ShapeRow row = GENERATE(from_range(analytic_models().begin(), analytic_models().end()));
  row.shape.layers = 4;
  INFO(row.name);
  const ModelWeights w = make_synthetic(row, "short");
  const auto e = make_plain(w, {.max_context = 512});
  require_closed_form(*e, row.shape.vocab);
  Oracle oracle(w);
  require_follows(*e, oracle, row.shape);
}

// 90 ids: a step has two splits of the context at most, and batched prefill takes the first 88 at once.
TEST_CASE("plain follows two layers of random weights of other families", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ShapeRow row = GENERATE(from_range(std::begin(kLiveTable), std::end(kLiveTable)));
  INFO(row.name);
  ModelShape shape = row.shape;
  shape.layers = 2;
  shape.vocab = 515;
  const ModelWeights w = random_model(shape, {.rope_theta = row.rope_theta, .tied = false});
  const auto ids = random_ids(90, shape.vocab);
  Oracle oracle(w);
  const auto truth = truth_of(oracle, ids);
  const auto e = make_plain(w, {.max_context = 128});
  require_close(compare_all(*e, ids, truth, kRandomLimits.margin), kRandomLimits, 0.5);
  require_hidden_close(*e, oracle);
  e->reset();
  e->poison();
  e->prefill(std::span(ids).first(89));
  std::vector<float> logits(truth[0].size());
  REQUIRE(e->decode(1, nullptr, logits.data())[0] == argmax_lowest(truth[88]));
  REQUIRE(relative_error(logits, truth[88]) <= kRandomLimits.worst);
}

TEST_CASE("plain continues the analytic checkpoint in its closed form", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = make_synthetic("short");
  const auto e = make_plain(w, {.max_context = 1024});
  for (const int depth : {11, 64, 300, 700}) {
    const auto prompt = synthetic_prompt(depth, 3);
    e->reset();
    e->poison();
    e->prefill(prompt);
    INFO("depth " << depth);
    REQUIRE(e->position() == depth);
    REQUIRE(e->decode(128) == synthetic_continuation(prompt, "short", 128));
  }
}

TEST_CASE("plain repeats itself to the bit", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = tiny();
  const auto e = make_plain(w, {.max_context = 512}), fresh = make_plain(w, {.max_context = 4096});
  require_repeats(*e, *fresh, corpus_ids(70), corpus_ids(11), 64, w.config.shape.vocab);
}

TEST_CASE("plain goes back to any position with the bits of the rows below", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = tiny();
  const auto e = make_plain(w, {.max_context = 256}), fresh = make_plain(w, {.max_context = 256});
  require_rewinds(*e, *fresh, corpus_ids(70), w.config.shape.vocab);
}

// This case also runs under compute-sanitizer's memcheck, hence few steps, and waits that may take
// a hundred times as long.
TEST_CASE("plain stays inside its buffers, filled to the last position", "[plain][memcheck]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  const int blocks = GENERATE(0, 7);
  const ModelWeights w = load_folder(data_dir() / name, name);
  constexpr int kContext = 131;  // three splits in the last step
  const auto e = make_plain(w, {.max_context = kContext, .blocks = blocks, .spin_scale = 100});
  require_stays_inside(*e, corpus_ids(kContext - 40), 41, w.config.shape.vocab);
}

// Under compute-sanitizer's racecheck, which is slower still: three steps alone, which split the context threefold,
// behind rows that no step has computed.
TEST_CASE("plain decodes behind empty rows the same twice", "[plain][racecheck]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const int blocks = GENERATE(0, 7);
  const auto e = make_plain(tiny(), {.max_context = 131, .blocks = blocks, .spin_scale = 100});
  const auto decode = [&] {
    REQUIRE(e->skip_to(128));
    return e->decode(3);
  };
  const auto tokens = decode();
  REQUIRE(std::count(tokens.begin(), tokens.end(), -1) == 0);
  REQUIRE(decode() == tokens);
}

TEST_CASE("plain goes back to a saved position", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e = make_plain(tiny(), {.max_context = 512});
  e->prefill(corpus_ids(100));
  const Snapshot start = e->save();
  REQUIRE(start.position == 99);
  const int64_t launches = e->launch_count();
  const auto ids = e->decode(100);
  REQUIRE(e->launch_count() == launches + 1);
  REQUIRE(e->position() == 199);
  for (int i = 0; i < 3; ++i) {
    e->restore(start);
    REQUIRE(e->position() == 99);
    REQUIRE(e->decode(100) == ids);
  }
  Snapshot wrong = start;
  wrong.kv_checksum ^= 1;
  REQUIRE_THROWS_AS(e->restore(wrong), Error);
  e->reset();  // the next prompt's rows are not the saved ones
  e->prefill(corpus_ids(150));
  e->reset();
  std::vector<int32_t> shifted = corpus_ids(151);
  shifted.erase(shifted.begin());
  e->prefill(shifted);
  REQUIRE_THROWS_AS(e->restore(start), Error);
}

TEST_CASE("plain reports its times and its progress", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e = make_plain(tiny(), {.max_context = 512});
  e->prefill(corpus_ids(10));
  require_times_and_progress(*e);
}

TEST_CASE("a block that never arrives is a fault with an address, not a hang", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e = make_plain(tiny(), {.max_context = 64, .spin_scale = 0.05, .stall_block = 5});
  for (int i = 0; i < 2; ++i) {  // twice, because the CUDA context must survive the error
    e->reset();
    const Thrown thrown = thrown_by([&] { e->prefill(corpus_ids(4)); });
    INFO(thrown.message);
    REQUIRE(thrown.kind == ErrorKind::kHang);
    REQUIRE(thrown.says("phase attention, layer 0, position 0"));
  }
}

// The tiny checkpoint with an untied head whose values the test chooses.
ModelWeights with_head(std::vector<Bf16>& head) {
  ModelWeights w = tiny();
  w.config.tie_word_embeddings = false;
  w.lm_head = {head.data(), w.config.shape.vocab, w.config.shape.hidden};
  return w;
}

TEST_CASE("among equal logits the lowest index wins, across warps and blocks", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  std::vector<Bf16> head = head_of_two_values(kTiny, 0);
  for (const int blocks : {0, 1, 3, 100}) {
    const auto e = make_plain(with_head(head), {.max_context = 64, .blocks = blocks});
    require_lowest_index_wins(*e, kTiny.vocab);
  }
}

TEST_CASE("a NaN logit gives no token, and the sequence ends there", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights original = tiny();
  std::vector<Bf16> head(original.embed_tokens.data,
                         original.embed_tokens.data + original.embed_tokens.size());
  head[200 * static_cast<size_t>(kTiny.hidden) + 3] = Bf16{0x7fc0};
  const auto e = make_plain(with_head(head), {.max_context = 64});
  e->prefill(corpus_ids(10));
  require_ends_at_nan(*e);
  e->reset();
  e->prefill(corpus_ids(10));
  REQUIRE(e->position() == 9);
  const auto forced = corpus_ids(4);  // forced inputs do not continue the sequence either
  REQUIRE(e->decode(4, forced.data()) == std::vector<int32_t>(4, -1));
  REQUIRE(e->position() == 10);
  REQUIRE_FALSE(e->hidden(0).has_value());
  // What the blocks did is known all the same.
  REQUIRE(e->set_timeline(true));
  e->reset();
  e->prefill(corpus_ids(10));
  REQUIRE(e->decode(4) == std::vector<int32_t>(4, -1));
  REQUIRE_FALSE(e->timeline().spans.empty());
}

TEST_CASE("plain skips to a depth for diagnostics", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e = make_plain(tiny(), {.max_context = 512});
  e->prefill(corpus_ids(20));
  REQUIRE(e->skip_to(300));
  REQUIRE(e->position() == 300);
  for (const int position : {0, 299}) {
    const auto row = e->kv_row(3, position).value();
    REQUIRE(std::all_of(row.begin(), row.end(), [](float x) { return x == 0; }));
  }
  REQUIRE(e->decode(8).size() == 8);
  REQUIRE(e->position() == 308);
  REQUIRE_THROWS_AS(e->skip_to(513), Error);
  REQUIRE_THROWS_AS(e->skip_to(-1), Error);
}

TEST_CASE("plain refuses what it cannot do and never clamps", "[plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = tiny();
  const auto refused = [&](const PlainOptions& options) {
    return thrown_by([&] { make_plain(w, options); });
  };
  REQUIRE(refused({.blocks = 100000}).kind == ErrorKind::kUnsupportedDevice);
  REQUIRE(refused({.gpu = 99}).kind == ErrorKind::kUnsupportedDevice);
  REQUIRE(refused({.max_context = 0}).kind == ErrorKind::kBadInput);
  REQUIRE_THROWS_AS(make_plain(w, {.max_context = w.config.max_positions + 1}), Error);
  require_refuses_requests(*make_plain(w, {.max_context = 16}), w.config.shape.vocab);
}

}  // namespace
}  // namespace mkbench
