// Engines behind the C interface: refusals, guarded memory, and forcing an engine that takes no
// forced ids.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "harness/plugin/library.h"
#include "harness/plugin/memory.h"
#include "references/engine_maker.h"
#include "tests/support/catch2.h"
#include "tests/support/plugins.h"

namespace mkbench {
extern const EngineMaker plugin_maker;
namespace {

using namespace testing;

const std::vector<int32_t> kForced = {-1, 4, 4, 80, 2, 61};  // decode() ignores the first id

TEST_CASE("a plugin decodes what the oracle does, free and forced", "[plugin]") {
  for (const std::string name : {"naive_cpu", "naive_cpu_bare", "naive_cpu_ids"}) {
    CAPTURE(name);
    const std::unique_ptr<Engine> engine = make_example(name);
    CHECK(engine->capabilities().name == "naive-cpu@" + name + ".so");
    CHECK(engine->capabilities().device == "cpu");
    CHECK_FALSE(engine->capabilities().snapshots);
    engine->prefill(kPrompt);
    CHECK(engine->position() == 4);
    CHECK(engine->decode(6) == oracle_ids(kPrompt, 6));
    CHECK(engine->position() == 10);
    const bool has_word = name != "naive_cpu_ids";
    CHECK(engine->progress().position == (has_word ? 9 : -1));
    engine->reset();
    CHECK(engine->position() == 0);
    engine->prefill(kPrompt);
    CHECK(engine->decode(6, kForced.data()) == oracle_ids(kPrompt, 6, kForced.data()));
    // One forced id, and after it the engine's own choices.
    std::vector<int32_t> whole = kPrompt;
    whole.insert(whole.end(), kForced.begin() + 1, kForced.end());
    whole.push_back(7);
    engine->set_pending(7);
    CHECK(engine->decode(3) == oracle_ids(whole, 3));
  }
}

TEST_CASE("a prefill after a decode continues the sequence", "[plugin]") {
  const std::unique_ptr<Engine> engine = make_example("naive_cpu");
  engine->prefill(kPrompt);
  std::vector<int32_t> all = kPrompt;
  const std::vector<int32_t> ids = engine->decode(2);
  all.insert(all.end(), ids.begin(), ids.end());
  for (const std::vector<int32_t>& more : {std::vector<int32_t>{1, 2, 0}, {3, 0}}) {
    engine->prefill(more);
    all.insert(all.end(), more.begin(), more.end());
  }
  CHECK(engine->decode(4) == oracle_ids(all, 4));  // id 0 was pending like any other
}

TEST_CASE("ids that are forced one by one show progress without the library's help", "[plugin]") {
  const std::unique_ptr<Engine> engine = make_example("naive_cpu_ids");
  std::atomic<int> seen = -1;
  std::atomic<bool> over = false;
  std::thread watch([&] {
    while (!over && seen < 0) seen = engine->progress().position;
  });
  for (int i = 0; i < 10'000 && seen < 0; ++i) {
    engine->reset();
    engine->prefill(kPrompt);
    engine->decode(6, kForced.data());
  }
  over = true;
  watch.join();
  CHECK(seen >= 0);
  CHECK(engine->progress().position == -1);
}

TEST_CASE("logits of a plugin are the oracle's", "[plugin]") {
  const std::unique_ptr<Engine> engine = make_example("naive_cpu");
  const size_t count = 6 * static_cast<size_t>(plugin_model().config.shape.vocab);
  std::vector<float> found(count), wanted;
  engine->prefill(kPrompt);
  engine->decode(6, kForced.data(), found.data());
  oracle_ids(kPrompt, 6, kForced.data(), &wanted);
  double worst = 0;
  for (size_t i = 0; i < count; ++i)
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - double{wanted[i]}));
  CHECK(worst < 1e-3);
  const std::unique_ptr<Engine> ids_only = make_example("naive_cpu_ids");
  CHECK_FALSE(ids_only->capabilities().logits);
  ids_only->prefill(kPrompt);
  CHECK(thrown_by([&] { ids_only->decode(1, nullptr, found.data()); }).says("has no logits"));
}

TEST_CASE("a broken plugin is detected", "[plugin]") {
  SECTION("ids that were not generated are missing") {
    const auto engine = make_example("naive_cpu_short");
    engine->prefill(kPrompt);
    CHECK(engine->decode(5).size() == 4);
  }
  SECTION("a write behind the ids") {
    const auto engine = make_example("naive_cpu_overrun");
    engine->prefill(kPrompt);
    const Thrown thrown = thrown_by([&] { engine->decode(5); });
    CHECK(thrown.kind == ErrorKind::kIntegrity);
    CHECK(thrown.says("20 bytes were asked for, memory 0 bytes after them was written"));
  }
  SECTION("a changed weight, at the next reset or audit") {
    const auto engine = make_example("naive_cpu_overwrite");
    engine->prefill(kPrompt);
    engine->decode(1);
    for (const bool audit : {true, false}) {
      const Thrown thrown = thrown_by([&] { audit ? engine->audit() : engine->reset(); });
      CHECK(thrown.kind == ErrorKind::kIntegrity);
      CHECK(thrown.says("model.layers.0.mlp.up_proj.weight was modified"));
    }
  }
  SECTION("the plugin's error text on one line") {
    const auto engine = make_example("naive_cpu_fails");
    engine->prefill(kPrompt);
    const Thrown thrown = thrown_by([&] { engine->decode(5); });
    CHECK(thrown.kind == ErrorKind::kRuntime);
    CHECK(thrown.says("decode failed (1): it gives up"));
  }
}

TEST_CASE("bad requests never reach a plugin", "[plugin]") {
  const std::unique_ptr<Engine> engine = make_example("naive_cpu", false, 6);
  const auto bad = [&](auto work, const std::string& words) {
    const Thrown thrown = thrown_by(work);
    CHECK(thrown.kind == ErrorKind::kBadInput);
    CHECK(thrown.says(words));
  };
  bad([&] { engine->decode(1); }, "no pending id");
  bad([&] { engine->prefill({}); }, "no ids");
  const std::vector<int32_t> outside = {3, 97};
  bad([&] { engine->prefill(outside); }, "token id 97 is not in [0, 97)");
  engine->prefill(kPrompt);
  bad([&] { engine->decode(0); }, "0 steps");
  bad([&] { engine->decode(3); }, "7 positions needed, 6 there");
  bad([&] { engine->set_pending(-1); }, "token id -1");
  CHECK(engine->decode(2) == oracle_ids(kPrompt, 2));
  // Six rows and the pending id are as much as there is room for.
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  engine->reset();
  bad([&] { engine->prefill(ids); }, "7 positions needed, 6 there");
  engine->prefill(std::span(ids).first(7));
  CHECK(engine->position() == 6);
  bad([&] { engine->decode(1); }, "7 positions needed, 6 there");
  // The example takes 4096 positions, and has no text where there is no engine.
  CHECK_NOTHROW(make_example("counting", false, 4096));
  const Thrown mute = thrown_by([] { make_example("counting", false, 4097); });
  CHECK((mute.kind == ErrorKind::kEnvUnfit && mute.says("open failed (3): it does not say why")));
}

TEST_CASE("an engine gets at most the max_context of its table, and tells it", "[plugin]") {
  for (const int asked : {99, 100, 101}) {
    const std::unique_ptr<Engine> engine = make_example("naive_cpu_narrow", false, asked);
    const EngineCapabilities can = engine->capabilities();
    CHECK((can.max_context == std::min(asked, 100) && can.context_limit == 100));
    engine->prefill(std::vector<int32_t>(static_cast<size_t>(can.max_context), 1));
    CHECK_NOTHROW(engine->decode(1));
    CHECK_THROWS_AS(engine->decode(1), Error);
  }
  CHECK(make_example("naive_cpu", false, 64)->capabilities().context_limit == 0);
}

TEST_CASE("a file that is no engine for this build is refused with the reason", "[plugin]") {
  struct Row {
    const char* name;
    ErrorKind kind;
    const char* words;
  };
  const Row rows[] = {
      {"symbol", ErrorKind::kBadInput,
       "exported function: found none, wanted mkbench_engine_table"},
      {"null", ErrorKind::kBadInput, "table: found NULL, wanted a table"},
      {"version", ErrorKind::kBadInput,
       "version of the engine ABI: found 5, wanted 4: compile it against this mkbench's "
       "references/"},
      {"size", ErrorKind::kBadInput, "size: found 0, wanted sizeof(mkbench_engine_abi)"},
      {"precision", ErrorKind::kBadInput, "precision: found 4, wanted 0 to 3"},
      {"name", ErrorKind::kBadInput, "name: found 'a?..?b', wanted 1 to 40 of letters"},
      {"function", ErrorKind::kBadInput, "function decode: found NULL, wanted a function"},
      {"device", ErrorKind::kUnsupportedDevice, "devices: found cuda, wanted cpu"},
      {"open", ErrorKind::kBadInput,
       "open failed (2): hidden is 128, wanted 4096; 64 "
       "positions were asked for: a limit belongs into max_context of its table"},
      {"environment", ErrorKind::kEnvUnfit, "open failed (3): hidden is 128, wanted 4096"},
      {"engine", ErrorKind::kRuntime, "open: found no engine"},
      {"none", ErrorKind::kBadInput, "file: found none"}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Thrown thrown = thrown_by([&] { make_example(std::string("refused_") + row.name); });
    CHECK(thrown.kind == row.kind);
    CHECK(thrown.says(row.words));
    CHECK(thrown.says(std::string("refused_") + row.name + ".so: "));
  }
}

TEST_CASE("guarded buffers detect writes on either side", "[plugin]") {
  GuardedBuffer buffer("ids", false, 1);
  std::vector<int32_t> out(5);
  auto* ids = static_cast<int32_t*>(buffer.prepare(20));
  CHECK(std::all_of(ids, ids + 5, [](int32_t id) { return id == -1; }));
  ids[0] = 3;
  buffer.collect(out.data());
  CHECK(out == std::vector<int32_t>{3, -1, -1, -1, -1});
  for (const int at : {-1, -1024, 5, 5 + 1023}) {
    CAPTURE(at);
    ids = static_cast<int32_t*>(buffer.prepare(20));
    ids[at] = 3;
    const Thrown thrown = thrown_by([&] { buffer.collect(out.data()); });
    CHECK(thrown.kind == ErrorKind::kIntegrity);
    const std::string distance = std::to_string(at < 0 ? -4 * at : 4 * (at - 5));
    CHECK(thrown.says(distance + " bytes " + (at < 0 ? "before them" : "after them")));
  }
  // In a shorter buffer after a longer one, the bytes behind the new end are canary again.
  ids = static_cast<int32_t*>(buffer.prepare(40));
  ids[9] = 3;
  ids = static_cast<int32_t*>(buffer.prepare(20));
  buffer.collect(out.data());
  ids[5] = 3;
  CHECK(thrown_by([&] { buffer.collect(out.data()); }).kind == ErrorKind::kIntegrity);
}

TEST_CASE("tensors are named and shaped as Hugging Face's", "[plugin]") {
  for (const bool tied : {true, false}) {
    const ModelWeights weights = random_model(plugin_model().config.shape, {.tied = tied});
    const PluginWeights copy("engine x", weights, false);
    const auto& tensors = copy.tensors();
    REQUIRE(tensors.size() == 3 + 11 * 2);
    CHECK(tensors[3].name == std::string("model.layers.0.self_attn.q_proj.weight"));
    CHECK(tensors[3].shape[0] == 128);
    CHECK(tensors[3].shape[1] == 64);
    CHECK(tensors[3].bytes == 2 * 128 * 64);
    CHECK(tensors[1].rank == 1);
    CHECK(tensors[1].shape[0] == 64);
    CHECK(tensors[1].shape[1] == 1);
    CHECK((tensors[3].shape[2] == 1 && tensors[3].shape[3] == 1));
    CHECK((tensors[3].size == sizeof(mkbench_tensor) && tensors[3].dtype == MKBENCH_BF16));
    CHECK((tensors.back().data == tensors.front().data) == tied);
    int64_t bytes = 0;
    for (const mkbench_tensor& t : tensors) {
      CHECK(reinterpret_cast<uintptr_t>(t.data) % 256 == 0);
      if (&t != &tensors.back() || !tied) bytes += static_cast<int64_t>(t.bytes);
    }
    CHECK(plugin_maker.bytes(weights.config, {.name = "x.so", .max_context = 9}) ==
          bytes + 9 * weights.config.shape.kv_bytes_per_position());
    CHECK(std::memcmp(tensors.back().data, weights.lm_head.data, weights.lm_head.bytes()) == 0);
    copy.check();
  }
}

}  // namespace
}  // namespace mkbench
