// The structs of the engine ABI: read by their sizes on both sides, filled in for models of every
// family; and the states that a library keeps in slots or shows.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "harness/plugin/library.h"
#include "harness/plugin/memory.h"
#include "harness/plugin/model.h"
#include "references/config.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/llama3_rope.h"
#include "tests/support/plugins.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("a struct is read up to the shorter of its sizes", "[plugin]") {
  struct Longer {
    mkbench_show known;
    uint64_t later[2];
  };
  Longer theirs{};
  std::memset(&theirs, 0x5a, sizeof theirs);
  mkbench_show wanted = theirs.known;
  wanted.size = sizeof wanted;
  for (const size_t size : {sizeof theirs, sizeof theirs.known}) {
    theirs.known.size = static_cast<uint32_t>(size);
    Longer mine{};  // what lies behind the struct stays
    mkbench_read(&mine.known, sizeof mine.known, &theirs);
    CHECK(std::memcmp(&mine.known, &wanted, sizeof wanted) == 0);
    CHECK((mine.later[0] == 0 && mine.later[1] == 0));
  }
  theirs.known.size = offsetof(mkbench_show, position);
  mkbench_show mine;
  std::memset(&mine, 0x77, sizeof mine);
  for (const bool own : {false, true}) {
    if (own) {
      mine = mkbench_own(&theirs.known);
    } else {
      mkbench_read(&mine, sizeof mine, &theirs.known);
    }
    CHECK((mine.size == sizeof mine && mine.what == wanted.what && mine.layer == wanted.layer));
    CHECK((mine.position == 0 && mine.out == nullptr));
  }
}

// A library that is called as a host of an older or a newer header calls it.
class Direct {
 public:
  explicit Direct(const std::string& name) : table_(load_plugin(example_path(name))) {
    mkbench_open args = model_.arguments();
    args.device = MKBENCH_DEVICE_CPU;
    args.gpu = -1;
    args.max_context = 16;
    args.batch = 1;
    REQUIRE(table_.open(&args, &engine_) == MKBENCH_OK);
    REQUIRE(table_.prefill(engine_, kPrompt.data(), static_cast<int32_t>(kPrompt.size())) ==
            MKBENCH_OK);
  }
  ~Direct() { table_.close(engine_); }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  // n ids by a struct of `size` bytes; its last fields are rubbish if `size` leaves them out.
  std::vector<int32_t> decode(int n, size_t size) {
    std::vector<int32_t> ids(static_cast<size_t>(n), -1);
    struct {
      mkbench_decode known;
      uint64_t later;
    } args{};
    args.later = 1;
    args.known.size = static_cast<uint32_t>(size);
    args.known.n = n;
    args.known.late_id = -1;
    args.known.ids = ids.data();
    if (size < sizeof args.known)
      std::memset(&args.known.logits, 1, sizeof args.known - offsetof(mkbench_decode, logits));
    REQUIRE(table_.decode(engine_, &args.known) == MKBENCH_OK);
    return ids;
  }

 private:
  const mkbench_engine_abi table_;
  const PluginWeights weights_{"test", plugin_model(), false};
  const PluginModel model_{plugin_model(), weights_.tensors()};
  mkbench_engine* engine_ = nullptr;
};

TEST_CASE("the examples take structs that are shorter or longer than their own", "[plugin]") {
  for (const size_t size : {offsetof(mkbench_decode, logits), sizeof(mkbench_decode),
                            sizeof(mkbench_decode) + sizeof(uint64_t)}) {
    CAPTURE(size);
    CHECK(Direct("naive_cpu").decode(3, size) == oracle_ids(kPrompt, 3));
    CHECK(Direct("counting").decode(3, size) == counted(kPrompt, 3));
  }
}

TEST_CASE("a library's table may be shorter or longer than mkbench's", "[plugin]") {
  const auto later = counting("longer table");
  CHECK(later->capabilities().rewind);
  CHECK(later->decode_late(60, 3) == counted(late(60), 3));
  const auto older = counting("shorter table");
  CHECK(older->capabilities().one_launch);
  CHECK(older->progress().position == 0);
  CHECK_FALSE(older->capabilities().rewind);
  CHECK_FALSE(older->capabilities().snapshots);
  CHECK_FALSE(older->set_timeline(true));
  CHECK_FALSE(older->hidden(0));
  CHECK(older->decode_late(60, 3) == counted(late(60), 3));
}

ModelWeights model_with(bool qk_norm, bool qkv_bias, const Rope& rope) {
  ModelShape shape = plugin_model().config.shape;
  shape.qk_norm = qk_norm;
  shape.qkv_bias = qkv_bias;
  ModelWeights weights = random_model(shape, {.tied = false});
  weights.config.rope = rope;
  return weights;
}

std::vector<ModelWeights> families() {
  std::vector<ModelWeights> models;
  models.push_back(model_with(true, false, {.theta = 1e6}));
  models.push_back(model_with(false, true, {.theta = 1e6}));
  models.push_back(model_with(false, false, llama3_rope(5e5, 8, 48)));
  models.push_back(
      model_with(false, false, {.theta = 1e4, .scaling = RopeScaling::kLinear, .factor = 4}));
  return models;
}

TEST_CASE("models of every family are decoded as by the oracle", "[plugin]") {
  for (const ModelWeights& model : families()) {
    CAPTURE(model.config.shape.qk_norm, rope_type(model.config.rope.scaling));
    std::vector<int32_t> prompt;
    for (int i = 0; i < 40; ++i) prompt.push_back((i * i + 5) % 97);
    std::vector<float> wanted;
    const std::vector<int32_t> ids = oracle_ids(prompt, 6, nullptr, &wanted, model);
    for (const std::string name : {"naive_cpu", "naive_cpu_theta"}) {
      CAPTURE(name);
      const auto engine = make_example(name, false, 64, model);
      engine->prefill(prompt);
      std::vector<float> found(wanted.size());
      const std::vector<int32_t> told = engine->decode(6, nullptr, found.data());
      float worst = 0;
      for (size_t i = 0; i < found.size(); ++i)
        worst = std::max(worst, std::abs(found[i] - wanted[i]));
      const bool right = name == "naive_cpu" || model.config.rope.theta == 1e4;
      CHECK((worst < 2e-3f) == right);
      CHECK((told == ids || !right));
    }
  }
}

TEST_CASE("open() is told all that config.json says", "[plugin]") {
  for (const ModelWeights& model : families()) {
    const PluginWeights copy("test", model, false);
    const PluginModel told(model, copy.tensors());
    const mkbench_open args = told.arguments();
    const mkbench_model m = mkbench_own(args.model);
    const ModelConfig& c = model.config;
    CHECK(args.size == sizeof args);
    CHECK(args.model->size == sizeof m);
    CHECK(args.folder == nullptr);
    ModelConfig written = parse_config(args.config_json, "test");
    CHECK(written.shape == c.shape);
    CHECK(written.rope.same_angles(c.rope));
    CHECK((m.hidden == 64 && m.intermediate == 96 && m.layers == 2 && m.heads == 4));
    CHECK((m.kv_heads == 2 && m.head_dim == 32 && m.vocab == 97 && m.tied == 0));
    CHECK((m.qk_norm == (c.shape.qk_norm ? 1 : 0) && m.qkv_bias == (c.shape.qkv_bias ? 1 : 0)));
    CHECK((m.rms_norm_eps == 1e-6 && m.rope_theta == c.rope.theta));
    CHECK(m.rope_factor == c.rope.factor);
    CHECK(m.rope_low_freq_factor == c.rope.low_freq_factor);
    CHECK(m.rope_high_freq_factor == c.rope.high_freq_factor);
    CHECK(m.rope_original_positions == c.rope.original_positions);
    CHECK(m.rope_scaling == static_cast<int32_t>(c.rope.scaling));
    std::vector<std::string> names;
    for (uint32_t i = 0; i < args.tensor_count; ++i) names.emplace_back(args.tensors[i]->name);
    const auto has = [&](const char* name) { return std::count(names.begin(), names.end(), name); };
    CHECK(has("model.layers.1.self_attn.q_norm.weight") == m.qk_norm);
    CHECK(has("model.layers.1.self_attn.q_proj.bias") == m.qkv_bias);
    CHECK(has("lm_head.weight") == 1);
  }
  // A model of a folder comes with the folder and its file.
  ModelWeights tiny = load_model(resolve_model("tiny-llama"));
  const PluginWeights copy("test", tiny, false);
  const PluginModel told(tiny, copy.tensors());
  CHECK(told.arguments().folder == tiny.folder);
  std::ifstream file(tiny.folder / "config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(text.size() == 820);
  CHECK(told.arguments().config_json == text);
  CHECK(told.arguments().model->norm_offset == 0);
  CHECK(told.arguments().model->activation == MKBENCH_SILU);
  CHECK(told.arguments().model->embedding_multiplier == 0);
  tiny.config.shape = with_other_steps(tiny.config.shape);
  const PluginModel other(tiny, copy.tensors());
  CHECK(other.arguments().model->norm_offset == 1);
  CHECK(other.arguments().model->activation == MKBENCH_GELU_TANH);
  CHECK(other.arguments().model->embedding_multiplier == 1.7);
}

TEST_CASE("an example refuses the steps of a layer that it has no code for", "[plugin]") {
  const ModelWeights tiny = load_model(resolve_model("tiny-llama"));
  const auto refused = [&](const auto& change) {
    ModelWeights weights = tiny;
    change(weights.config.shape);
    return thrown_by([&] { make_example("naive_cpu", false, 64, weights); })
        .says("open failed (2): model: wanted norms without offset, SiLU, no embedding multiplier");
  };
  CHECK(refused([](ModelShape& s) { s.norm_offset = 1; }));
  CHECK(refused([](ModelShape& s) { s.activation = Activation::kGeluTanh; }));
  CHECK(refused([](ModelShape& s) { s.embedding_multiplier = 2; }));
}

TEST_CASE("what a model has that a Qwen3 lacks is named", "[plugin]") {
  mkbench_model qwen3{};
  qwen3.layers = qwen3.qk_norm = 1;
  CHECK(mkbench_unlike_qwen3(&qwen3) == nullptr);
  const auto named = [&](auto field, int value) {
    mkbench_model other = qwen3;
    other.*field = value;
    const char* why = mkbench_unlike_qwen3(&other);
    return std::string(why != nullptr ? why : "");
  };
  CHECK(named(&mkbench_model::qk_norm, 0).ends_with("no QK-norm"));
  CHECK(named(&mkbench_model::qkv_bias, 1).ends_with("biases of q, k and v"));
  for (const int scaling : {MKBENCH_ROPE_LINEAR, MKBENCH_ROPE_LLAMA3})
    CHECK(named(&mkbench_model::rope_scaling, scaling).ends_with("scaled RoPE"));
  CHECK(named(&mkbench_model::norm_offset, 1).ends_with("norms with an offset"));
  CHECK(named(&mkbench_model::activation, MKBENCH_GELU_TANH).ends_with("another activation"));
  CHECK(named(&mkbench_model::embedding_multiplier, 2).ends_with("scaled embeddings"));
}

TEST_CASE("a tied head is said to be the embedding", "[plugin]") {
  const PluginWeights copy("test", plugin_model(), false);
  CHECK(PluginModel(plugin_model(), copy.tensors()).arguments().model->tied == 1);
}

TEST_CASE("snapshots of a plugin", "[plugin]") {
  const auto engine = counting();
  const Snapshot start = engine->save();
  CHECK(start.position == 4);
  CHECK(start.pending == 33);
  CHECK(start.derived.empty());
  const std::vector<int32_t> ids = engine->decode(5);
  CHECK(engine->save().kv_checksum != start.kv_checksum);
  engine->restore(start);
  CHECK(engine->position() == 4);
  CHECK(engine->decode(5) == ids);
  engine->restore(start);
  engine->prefill(std::vector<int32_t>{1, 2});
  std::vector<int32_t> longer = kPrompt;
  longer.insert(longer.end(), {1, 2});
  CHECK(engine->decode(3) == counted(longer, 3));
  // The rows below the saved position are those that were saved, whatever followed them.
  engine->restore(start);
  CHECK(engine->decode(5) == ids);
  engine->rewind(4);
  // An id that the harness has made pending belongs to the snapshot, although the library has not
  // been told it; and so does one that is changed in the snapshot.
  engine->set_pending(60);
  const Snapshot other = engine->save();
  engine->decode(2);
  engine->restore(other);
  CHECK(engine->decode(3) == counted(late(60), 3));
  Snapshot changed = start;
  changed.pending = 61;
  engine->restore(changed);
  CHECK(engine->decode(3) == counted(late(61), 3));
  Snapshot beyond = start;
  beyond.position = 90;
  CHECK(thrown_by([&] { engine->restore(beyond); }).says("restore: position 90 is not in [0, 7]"));
}

TEST_CASE("a snapshot is found by position and checksum, with what the library knows", "[plugin]") {
  // The library has not been told 60 when it saves, nor when it restores.
  const auto engine = counting();
  engine->set_pending(60);
  const Snapshot untold = engine->save();
  engine->decode(2);
  engine->restore(untold);
  CHECK(engine->decode(3) == counted(late(60), 3));
  // Two states of one position.
  engine->rewind(4);
  engine->decode_late(60, 1);
  const Snapshot first = engine->save();
  engine->rewind(4);
  engine->decode_late(61, 1);
  const Snapshot second = engine->save();
  std::vector<int32_t> all = late(61);
  all.push_back(second.pending);
  engine->restore(second);
  CHECK(engine->decode(2) == counted(all, 2));
  // Two states of one checksum.
  const auto weak = counting("weak checksum");
  const Snapshot start = weak->save();
  weak->decode(1);
  const Snapshot next = weak->save();
  CHECK(next.kv_checksum == start.kv_checksum);
  weak->restore(next);
  CHECK(weak->decode(2) == std::vector<int32_t>{counted(kPrompt, 3)[1], counted(kPrompt, 3)[2]});
  // A library that takes no late id goes on from its own pending id, without another prefill.
  const auto plain = counting("no late id");
  const Snapshot own = plain->save();
  plain->decode(2);
  plain->restore(own);
  CHECK(plain->decode(3) == counted(kPrompt, 3));
  CHECK(plain->hidden(0).value()[2] == 0);
  Snapshot other = own;
  other.pending = 60;
  plain->restore(other);
  CHECK(plain->decode(3) == counted(late(60), 3));
  CHECK(plain->hidden(0).value()[2] == 1);
}

TEST_CASE("the states in use stay when others are saved", "[plugin]") {
  const auto engine = counting();
  const Snapshot start = engine->save();
  const std::vector<int32_t> ids = engine->decode(3);
  for (int run = 0; run < 3; ++run) {
    for (int i = 0; i < MKBENCH_SLOTS - 1; ++i) {
      engine->decode(1);
      engine->save();
    }
    engine->restore(start);
    CHECK(engine->decode(3) == ids);
  }
  std::vector<Snapshot> states;
  for (int i = 0; i < MKBENCH_SLOTS; ++i) {
    engine->decode(1);
    states.push_back(engine->save());
  }
  for (size_t i = states.size() - 1; i-- > 0;) {
    engine->restore(states[i]);
    CHECK(engine->position() == states[i].position);
    CHECK(engine->decode(1).front() == states[i + 1].pending);
  }
  const Thrown lost = thrown_by([&] { engine->restore(start); });
  CHECK(lost.kind == ErrorKind::kRuntime);
  CHECK(lost.says("found no saved state of position 4 with this checksum; the last 4 are kept"));
}

TEST_CASE("snapshots of a plugin that are wrong", "[plugin]") {
  const auto changing = counting("prefix");
  const Snapshot start = changing->save();
  changing->decode(2);
  const Thrown thrown = thrown_by([&] { changing->restore(start); });
  CHECK(thrown.kind == ErrorKind::kIntegrity);
  CHECK(thrown.says("restore failed (4): prefix"));
  const auto stuck = counting("restore fails");
  const Snapshot kept = stuck->save();
  const Thrown failed = thrown_by([&] { stuck->restore(kept); });
  CHECK((failed.kind == ErrorKind::kRuntime && failed.says("restore failed (1)")));
  // The library has lost what its slot held when this save failed.
  const auto failing = counting("save fails");
  Snapshot last;
  for (int i = 0; i < MKBENCH_SLOTS; ++i) last = failing->save();
  failing->decode(1);
  CHECK(thrown_by([&] { failing->save(); }).says("save failed (1)"));
  failing->restore(last);
  CHECK(failing->decode(3) == counted(kPrompt, 3));
  CHECK(thrown_by([&] { counting("bare")->save(); }).says("it has no snapshots"));
}

TEST_CASE("a plugin shows hidden states and KV rows", "[plugin]") {
  const auto engine = make_example("naive_cpu");
  CHECK_FALSE(engine->hidden(0));
  engine->prefill(kPrompt);
  engine->decode(2);
  Oracle oracle(plugin_model(), 1);
  for (const int32_t id : kPrompt) oracle.step(id);
  oracle.step(oracle_ids(kPrompt, 1).front());
  const auto near = [](const std::vector<float>& found, std::span<const float> wanted) {
    return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                      [](float a, float b) { return std::abs(a - b) < 1e-3f; });
  };
  for (int layer = 0; layer < 2; ++layer) {
    CHECK(near(engine->hidden(layer).value(), oracle.hidden_states()[static_cast<size_t>(layer)]));
    CHECK(near(engine->kv_row(layer, 5).value(), oracle.kv_row(layer, 5)));
    CHECK(near(engine->kv_row(layer, 0).value(), oracle.kv_row(layer, 0)));
  }
  for (const auto& [layer, position] : {std::pair(-1, 0), {2, 0}, {0, -1}, {0, 6}})
    CHECK_FALSE(engine->kv_row(layer, position));
  CHECK_FALSE(engine->hidden(2));
}

TEST_CASE("a plugin that shows a part, nothing, or fails", "[plugin]") {
  const auto rows = counting("rows alone");
  const std::vector<float> row = rows->kv_row(1, 2).value();
  CHECK(row.size() == 128);
  CHECK((row[0] == 96 && row[1] == 1 && row[2] == 0 && std::isnan(row[3])));
  CHECK_FALSE(rows->hidden(1));
  CHECK(counting()->hidden(1).value().front() == 3);  // of the last position
  const auto failing = counting("show fails");
  const Thrown thrown = thrown_by([&] { failing->hidden(0); });
  CHECK((thrown.kind == ErrorKind::kRuntime && thrown.says("show failed (1): show fails")));
  CHECK_FALSE(counting("bare")->hidden(0));
}

}  // namespace
}  // namespace mkbench
