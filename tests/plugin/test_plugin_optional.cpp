// The optional functions of the engine ABI: an engine in C99 and one in C++ that offer them, and the
// same engines without.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "harness/plugin/timeline.h"
#include "harness/plugin/weight_storage.h"
#include "tests/support/catch2.h"
#include "tests/support/plugins.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("a plugin's claims reach its capabilities", "[plugin]") {
  const EngineCapabilities two = counting()->capabilities();
  CHECK(two.snapshots);
  CHECK(two.rewind);
  CHECK(two.late_id);
  CHECK(two.one_launch);
  CHECK_FALSE(two.deterministic);
  CHECK_FALSE(two.counted);
  CHECK(two.precision == PrecisionClass::kLossy);
  const EngineCapabilities one = counting("bare")->capabilities();
  CHECK_FALSE(one.snapshots);
  CHECK_FALSE(one.rewind);
  CHECK(one.late_id);
  CHECK_FALSE(one.one_launch);
  CHECK(one.deterministic);
  CHECK(one.precision == PrecisionClass::kBf16);
  CHECK(counting("fp16")->capabilities().precision == PrecisionClass::kFp16);
  const EngineCapabilities ids_only = make_example("naive_cpu_ids")->capabilities();
  CHECK_FALSE(ids_only.late_id);
  // Without a way to say which id comes next, a sequence that went back could not go on.
  const EngineCapabilities stuck = counting("no late id")->capabilities();
  CHECK_FALSE(stuck.late_id);
  CHECK_FALSE(stuck.rewind);
  const EngineCapabilities naive = make_example("naive_cpu")->capabilities();
  CHECK(naive.precision == PrecisionClass::kFp32Accumulate);
  CHECK(naive.deterministic);
  CHECK(naive.rewind);
  CHECK_FALSE(naive.snapshots);
}

TEST_CASE("a late id replaces the pending one", "[plugin]") {
  for (const char* fault : {"", "bare"}) {
    CAPTURE(fault);
    const auto engine = counting(fault);
    const int64_t before = engine->launch_count();
    CHECK(engine->decode_late(60, 4) == counted(late(60), 4));
    // One launch is claimed for each decode, also where an id is forced by two calls.
    CHECK(engine->launch_count() == before + 1);
    CHECK(engine->position() == 8);
    // What was fed is kept in mind: a prefill after it repeats it.
    std::vector<int32_t> all = late(60);
    for (const int32_t id : counted(late(60), 4)) all.push_back(id);
    engine->prefill(std::vector<int32_t>{1, 2});
    all.insert(all.end(), {1, 2});
    CHECK(engine->decode(2) == counted(all, 2));
    CHECK(thrown_by([&] { engine->decode_late(97, 1); }).says("token id 97 is not in [0, 97)"));
  }
  CHECK(counting("late id ignored")->decode_late(60, 4) == counted(kPrompt, 4));
  const auto failing = counting("late id fails");
  const Thrown thrown = thrown_by([&] { failing->decode_late(60, 4); });
  CHECK(thrown.kind == ErrorKind::kRuntime);
  CHECK(thrown.says("counting.so: decode failed (1): late id fails"));
}

TEST_CASE("ids are forced one by one where only a late id is taken", "[plugin]") {
  const auto engine = counting();
  const std::vector<int32_t> forced = {-1, 7, 8};
  std::vector<int32_t> wanted, all = kPrompt;
  for (size_t t = 0; t < forced.size(); ++t) {
    if (t > 0) all.push_back(forced[t]);
    wanted.push_back(counted(all, 1).front());
  }
  CHECK(engine->decode(3, forced.data()) == wanted);
  CHECK(engine->position() == 7);
}

TEST_CASE("rewind keeps the rows below a position, and nothing is pending", "[plugin]") {
  const auto engine = counting();
  for (int run = 0; run < 2; ++run) {
    engine->decode(6);
    engine->rewind(4);
    CHECK(engine->position() == 4);
    CHECK(thrown_by([&] { engine->decode(1); }).says("no pending id"));
    CHECK(engine->decode_late(60 + run, 3) == counted(late(60 + run), 3));
  }
  for (const int outside : {-1, 8}) {
    const Thrown thrown = thrown_by([&] { engine->rewind(outside); });
    CHECK(thrown.kind == ErrorKind::kBadInput);
    CHECK(thrown.says("is not in [0, 7]"));
  }
  // A prefill goes on from there.
  engine->rewind(2);
  engine->prefill(std::vector<int32_t>{1, 2});
  CHECK(engine->decode(3) == counted({5, 17, 1, 2}, 3));
}

TEST_CASE("logits show whether the position and the late id were taken", "[plugin]") {
  for (const std::string name : {"naive_cpu", "naive_cpu_rewind", "naive_cpu_pending"}) {
    CAPTURE(name);
    const auto engine = make_example(name);
    engine->prefill(kPrompt);
    CHECK(engine->decode(6) == oracle_ids(kPrompt, 6));
    engine->rewind(4);
    engine->set_pending(60);
    std::vector<float> wanted;
    oracle_ids(late(60), 3, nullptr, &wanted);
    std::vector<float> found(wanted.size());
    engine->decode(3, nullptr, found.data());
    float worst = 0;
    for (size_t i = 0; i < found.size(); ++i)
      worst = std::max(worst, std::abs(found[i] - wanted[i]));
    CHECK((worst < 1e-3f) == (name == "naive_cpu"));
  }
}

TEST_CASE("a rewind that fails or is not there", "[plugin]") {
  const auto failing = counting("rewind fails");
  CHECK(thrown_by([&] { failing->rewind(2); }).says("rewind failed (1): rewind fails"));
  const auto lying = counting("rewind one short");
  lying->decode(2);
  lying->rewind(4);
  CHECK(lying->decode_late(60, 3) != counted(late(60), 3));
  const auto without = counting("bare");
  CHECK(thrown_by([&] { without->rewind(2); }).says("cannot go back"));
}

// Two rows of the embedding, added: no row of it.
std::vector<Bf16> sums_of_rows(const std::vector<int32_t>& ids) {
  const Matrix& table = plugin_model().embed_tokens;
  std::vector<Bf16> vectors;
  for (const int32_t id : ids) {
    const auto a = table.row(id), b = table.row((id + 7) % table.rows);
    for (size_t i = 0; i < a.size(); ++i)
      vectors.push_back(to_bf16(to_float(a[i]) + 0.5f * to_float(b[i])));
  }
  return vectors;
}

TEST_CASE("a plugin takes hidden vectors and gives them", "[plugin]") {
  const std::vector<Bf16> vectors = sums_of_rows(kPrompt);
  const int n = static_cast<int>(kPrompt.size());
  const auto hidden = static_cast<size_t>(plugin_model().config.shape.hidden);
  const auto vocab = static_cast<size_t>(plugin_model().config.shape.vocab);
  Oracle oracle(plugin_model(), 1);
  std::vector<float> logits, normed;
  std::vector<int32_t> ids;
  const auto keep = [&](const std::vector<float>& row) {
    const std::vector<float> state = oracle.final_hidden();
    logits.insert(logits.end(), row.begin(), row.end());
    normed.insert(normed.end(), state.begin(), state.end());
    ids.push_back(argmax_lowest(row));
  };
  for (int t = 0; t < n; ++t)
    keep(oracle.step(std::span(vectors).subspan(static_cast<size_t>(t) * hidden, hidden)));
  keep(oracle.step(ids.back()));

  for (const std::string name : {"naive_cpu", "naive_cpu_unnormed"}) {
    CAPTURE(name);
    const auto engine = make_example(name);
    CHECK(engine->capabilities().vectors);
    std::vector<float> found(logits.size()), states(normed.size());
    std::vector<int32_t> told = engine->decode_vectors(
        n, {.in = vectors.data(), .hidden_out = states.data(), .logits_out = found.data()});
    CHECK(engine->position() == n);
    // By id after the vectors: the last id is pending.
    const auto last = static_cast<size_t>(n);
    told.push_back(engine->decode_vectors(
        1, {.hidden_out = &states[last * hidden], .logits_out = &found[last * vocab]})[0]);
    CHECK(told == ids);
    const auto worst = [](const std::vector<float>& a, const std::vector<float>& b) {
      float most = 0;
      for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
      return most;
    };
    CHECK(worst(found, logits) < 1e-3f);
    CHECK((worst(states, normed) < 1e-3f) == (name == "naive_cpu"));
    CHECK(thrown_by([&] { engine->prefill(kPrompt); }).says("rows of vectors cannot be prefilled"));
    engine->reset();
    engine->prefill(kPrompt);
    CHECK(engine->decode(2) == oracle_ids(kPrompt, 2));
  }
}

TEST_CASE("a plugin without hidden vectors refuses them by name", "[plugin]") {
  const std::vector<Bf16> vectors = sums_of_rows(kPrompt);
  for (const std::string name : {"naive_cpu_bare", "counting"}) {
    CAPTURE(name);
    const auto engine = make_example(name);
    CHECK_FALSE(engine->capabilities().vectors);
    const Thrown thrown = thrown_by([&] { engine->decode_vectors(1, {.in = vectors.data()}); });
    CHECK(thrown.kind == ErrorKind::kRuntime);
    CHECK(thrown.says(name + ".so: decode_vectors: this engine takes ids and gives logits alone"));
  }
  // One half of it is none.
  CHECK_FALSE(counting("hidden alone")->capabilities().vectors);
  CHECK_FALSE(counting()->capabilities().vectors);
}

TEST_CASE("vectors drop a pending id that the library has not been told", "[plugin]") {
  const std::vector<Bf16> vectors = sums_of_rows(kPrompt);
  const auto engine = counting("vectors");
  engine->set_pending(60);
  engine->decode_vectors(1, {.in = vectors.data()});
  CHECK(engine->position() == 5);
  CHECK(thrown_by([&] { engine->prefill(kPrompt); }).says("rows of vectors cannot be prefilled"));
}

TEST_CASE("vectors that no trunk can take never reach a plugin", "[plugin]") {
  std::vector<Bf16> vectors = sums_of_rows(kPrompt);
  const auto engine = make_example("naive_cpu", false, 6);
  const auto bad = [&](int n, const VectorSteps& steps, const std::string& words) {
    const Thrown thrown = thrown_by([&] { engine->decode_vectors(n, steps); });
    CHECK(thrown.kind == ErrorKind::kBadInput);
    CHECK(thrown.says(words));
  };
  bad(0, {.in = vectors.data()}, "0 steps");
  bad(7, {.in = vectors.data()}, "7 positions needed, 6 there");
  bad(1, {}, "no pending id");
  std::vector<int32_t> rows = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  engine->decode_vectors(3, {.in = vectors.data(), .positions = rows.data()});
  bad(3, {.in = vectors.data(), .positions = rows.data()},
      "mRoPE positions of step 0: found 0, 0, 0, wanted 3 in each row");
  engine->reset();
  rows[4] = 5;
  bad(3, {.in = vectors.data(), .positions = rows.data()},
      "mRoPE positions of step 1: found 1, 5, 1, wanted three equal rows: mRoPE with unequal rows "
      "is unsupported");
  vectors[65] = {0x7f80};
  bad(3, {.in = vectors.data()}, "vector 1, value 1 is not finite");
  CHECK(engine->position() == 0);
}

TEST_CASE("a timeline of one decode", "[plugin]") {
  const auto engine = counting();
  REQUIRE(engine->set_timeline(true));
  CHECK(thrown_by([&] { engine->timeline(); }).says("no decode has recorded a timeline"));
  engine->decode(3);
  const Timeline timeline = engine->timeline();
  REQUIRE(timeline.spans.size() == 6);
  for (int i = 0; i < 6; ++i) {
    // Block 0 runs phase 1, block 1 phase 0; each once a step.
    const TimelineSpan& span = timeline.spans[static_cast<size_t>(i)];
    const int step = i % 3, block = i / 3;
    CHECK(span.block == block);
    CHECK(span.phase == 1 - block);
    CHECK(span.step == step);
    CHECK(span.layer == -1);
    CHECK(span.t0_ns == 100 * step + (block == 1 ? 0 : 50));
    CHECK(span.t1_ns == 100 * step + (block == 1 ? 50 : 90));
  }
  CHECK(timeline.phases == std::vector<std::string>{"attention", "phase 1"});
  CHECK(timeline.roles == std::vector<std::string>{"block"});
  CHECK(timeline.lost == 0);
  engine->decode(1);
  CHECK(engine->timeline().spans.size() == 2);  // and none of the decode before
  REQUIRE(engine->set_timeline(false));
  CHECK(engine->progress().position == 0);  // the library tells its room here: it is switched off
}

// Phases of a decode of 2 steps and 3 layers.
const char* named_phase(int32_t phase) {
  constexpr const char* kNames[] = {
      "qkv: exchange", "qkv", "qkv: hand-off", "loader/qkv: room", "head", "odd: walk", "/x/y"};
  return phase < 7 ? kNames[phase] : nullptr;
}

TEST_CASE("names of phases say role and kind, and counts of bodies say step and layer",
          "[plugin]") {
  std::vector<mkbench_span> spans;
  uint64_t at = 1'000'000;
  const auto put = [&](int32_t phase) { spans.push_back({4, phase, at, at + 10}), at += 10; };
  for (int step = 0; step < 2; ++step) {
    for (int layer = 0; layer < 3; ++layer) put(0), put(1), put(2);
    put(4);
  }
  for (const int32_t phase : {3, 5, 6, 6, 6}) put(phase);
  const Timeline full = checked_timeline("test", spans, named_phase, {2, 3});
  CHECK(full.lost == 1);  // no span is left unwritten: there may have been more
  spans.resize(30);
  std::memset(&spans[25], 0xff, 5 * sizeof(mkbench_span));
  const Timeline timeline = checked_timeline("test", spans, named_phase, {2, 3});
  CHECK(timeline.lost == 0);
  CHECK(timeline.roles == std::vector<std::string>{"block", "loader"});
  CHECK(timeline.phases == std::vector<std::string>{"qkv", "head", "odd: walk", "/x/y"});
  REQUIRE(timeline.spans.size() == 25);
  for (int i = 0; i < 20; ++i) {
    const TimelineSpan& span = timeline.spans[static_cast<size_t>(i)];
    const int step = i / 10, in_step = i % 10;
    CHECK(span.t0_ns == 10 * i);
    CHECK(span.step == step);
    CHECK(span.layer == (in_step == 9 ? -1 : in_step / 3));
    constexpr SpanKind kKinds[] = {SpanKind::kExchange, SpanKind::kBody, SpanKind::kHandOff};
    CHECK(span.what() == (in_step == 9 ? SpanKind::kBody : kKinds[in_step % 3]));
  }
  CHECK(timeline.spans[20].step == -1);  // one body of two steps
  CHECK(timeline.spans[23].step == -1);  // three
  CHECK(timeline.spans[24].role == 1);
  CHECK(timeline.spans[24].what() == SpanKind::kRoom);
}

Timeline timeline_of(Engine& engine) {
  engine.set_timeline(true);
  engine.decode(3);
  return engine.timeline();
}

TEST_CASE("a timeline that is wrong or not there", "[plugin]") {
  for (const char* fault : {"span order", "span block", "span phase"}) {
    CAPTURE(fault);
    const Thrown thrown = thrown_by([&] { timeline_of(*counting(fault)); });
    CHECK(thrown.kind == ErrorKind::kRuntime);
    CHECK(thrown.says("wanted a block and a phase from 0 and an end after the begin"));
  }
  const Thrown thrown = thrown_by([&] { timeline_of(*counting("span room")); });
  CHECK(thrown.kind == ErrorKind::kIntegrity);
  CHECK(thrown.says("spans of decode(): 50331648 bytes were asked for, memory 0 bytes after them"));
  const auto first = counting("bare");
  CHECK_FALSE(first->set_timeline(true));
  CHECK(thrown_by([&] { first->timeline(); }).says("it offers no timeline"));
}

TEST_CASE("how a library keeps a weight is read by its types and blocks") {
  CHECK_FALSE(storage_of(nullptr, "x"));
  mkbench_storage told = {sizeof told, MKBENCH_INT4, 1, 128, MKBENCH_FP16, MKBENCH_INT4, 12345};
  const auto read = [&] { return *storage_of(&told, "storage('w')"); };
  CHECK(read().bits == 4);
  CHECK(read().scale_bits == 16);
  CHECK(read().zero_bits == 4);
  CHECK(read().block_out == 1);
  CHECK(read().block_in == 128);
  CHECK(read().bytes == 12345);
  for (const auto& [dtype, bits] : std::vector<std::pair<int32_t, int>>{{MKBENCH_BF16, 16},
                                                                        {MKBENCH_FP16, 16},
                                                                        {MKBENCH_FP32, 32},
                                                                        {MKBENCH_FP8_E4M3, 8},
                                                                        {MKBENCH_INT8, 8},
                                                                        {MKBENCH_UINT8, 8}}) {
    told.dtype = dtype;
    CHECK(read().bits == bits);
  }
  // A library that was built before zero points were told.
  told.size = offsetof(mkbench_storage, zero_dtype);
  CHECK(read().zero_bits == 0);
  CHECK(read().bytes == 0);
  told.size = sizeof told;
  const mkbench_storage whole = told;
  for (const auto change :
       {+[](mkbench_storage& s) { s.dtype = 0; }, +[](mkbench_storage& s) { s.dtype = 8; },
        +[](mkbench_storage& s) { s.scale_dtype = 9; },
        +[](mkbench_storage& s) { s.zero_dtype = -1; },
        +[](mkbench_storage& s) { s.scale_dtype = 0; }, +[](mkbench_storage& s) { s.scale_in = 0; },
        +[](mkbench_storage& s) { s.scale_out = -1; }}) {
    told = whole;
    change(told);
    CHECK_THROWS_WITH(read(), ContainsText("storage('w'): "));
  }
  told = whole;
  told.scale_out = told.scale_in = told.scale_dtype = 0;
  CHECK(read().scale_bits == 0);
}

}  // namespace
}  // namespace mkbench
